"""AtomicAdd among concurrent work-items (R56): a compare-and-exchange loop on the integer with the element's bits."""

from __future__ import annotations

from uops.backends.cstyle.alu import render_wrapping_arithmetic
from uops.backends.cstyle.language import ALIAS, HelperProvider
from uops.backends.cstyle.render import CWriter
from uops.spec.errors import Unsupported
from uops.spec.ir import dtypes as dt
from uops.spec.ir.dtypes import DType
from uops.spec.ir.ops import Op

#: Item size in bytes -> the unsigned integer and the function of OpenCL C that exchanges it.
_EXCHANGE = {4: (dt.uint32, "atomic_cmpxchg"), 8: (dt.uint64, "atom_cmpxchg")}
_EXTENSION = "#pragma OPENCL EXTENSION cl_khr_int64_base_atomics : enable\n"


def render_atomic_add_call(w: CWriter, d: DType, pointer: str, value: str, space: str) -> str:
    """Return a statement that atomically adds `value` to the element at `pointer`.

    Raises Unsupported for an element size without an atomic exchange.
    """
    if d.itemsize not in _EXCHANGE:
        raise Unsupported(f"AtomicAdd of {d} by several work-items", w.language.name)
    word, exchange = _EXCHANGE[d.itemsize]
    name = f"atomic_add_{space.strip('_ ')}_{ALIAS[d]}"
    to, back = (w.require_helper("reinterpret", a, b) if d.is_float else f"({ALIAS[b]})" for a, b in ((word, d), (d, word)))
    sum_text = _sum(w, d, f"{to}(old)")
    definition = (
        f"{_EXTENSION if d.itemsize == 8 else ''}"
        f"static inline void {name}(volatile {space}{ALIAS[word]} *at, {ALIAS[d]} x) {{\n"
        f"  {ALIAS[word]} old = *at, seen;\n"
        f"  while ((seen = {exchange}(at, old, {back}({sum_text}))) != old) old = seen;\n"
        "}\n"
    )
    return f"{w.define_function(name, definition)}((volatile {space}{ALIAS[word]} *){pointer}, {value});"


def _sum(needs: HelperProvider, d: DType, old: str) -> str:
    return render_wrapping_arithmetic(needs, Op.ADD, d, old, "x")
