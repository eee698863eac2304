"""AtomicAdd of work-items that run at the same time (R56): compare and exchange, on the integer of the element's bits."""

from __future__ import annotations

from uops.backends.cstyle.alu import arithmetic
from uops.backends.cstyle.language import ALIAS, Needs
from uops.backends.cstyle.render import Writer
from uops.spec.errors import Unsupported
from uops.spec.ir import dtypes as dt
from uops.spec.ir.dtypes import DType
from uops.spec.ir.ops import Op

#: By item size: the unsigned integer and the function of OpenCL C that exchanges it.
_EXCHANGE = {4: (dt.uint32, "atomic_cmpxchg"), 8: (dt.uint64, "atom_cmpxchg")}
_EXTENSION = "#pragma OPENCL EXTENSION cl_khr_int64_base_atomics : enable\n"


def add(w: Writer, d: DType, pointer: str, value: str, space: str) -> str:
    """A statement that adds `value` to the element at `pointer`. Raises Unsupported for an element that is no atomic word."""
    if d.itemsize not in _EXCHANGE:
        raise Unsupported(f"AtomicAdd of {d} by several work-items", w.language.name)
    word, exchange = _EXCHANGE[d.itemsize]
    name = f"atomic_add_{space.strip('_ ')}_{ALIAS[d]}"
    to, back = (w.helper("reinterpret", a, b) if d.is_float else f"({ALIAS[b]})" for a, b in ((word, d), (d, word)))
    total = _sum(w, d, f"{to}(old)")
    text = (
        f"{_EXTENSION if d.itemsize == 8 else ''}"
        f"static inline void {name}(volatile {space}{ALIAS[word]} *at, {ALIAS[d]} x) {{\n"
        f"  {ALIAS[word]} old = *at, seen;\n"
        f"  while ((seen = {exchange}(at, old, {back}({total}))) != old) old = seen;\n"
        "}\n"
    )
    return f"{w.define(name, text)}((volatile {space}{ALIAS[word]} *){pointer}, {value});"


def _sum(needs: Needs, d: DType, old: str) -> str:
    return arithmetic(needs, Op.ADD, d, old, "x")
