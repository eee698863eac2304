"""AtomicAdd among concurrent work-items (R56): a compare-and-exchange loop on the integer with the element's bits."""

from __future__ import annotations

from uops.backends.cstyle.alu import render_wrapping_arithmetic
from uops.backends.cstyle.language import ALIAS, HelperProvider
from uops.backends.cstyle.render import CWriter
from uops.spec.errors import Unsupported
from uops.spec.ir import dtypes as dt
from uops.spec.ir.dtypes import DType
from uops.spec.ir.ops import Op

#: Item size in bytes -> the unsigned integer with the element's bits.
_WORDS = {d.itemsize: d for d in (dt.uint8, dt.uint16, dt.uint32, dt.uint64)}


def render_atomic_add_statement_by_compare_exchange(w: CWriter, d: DType, pointer: str, value: str, space: str) -> str:
    """Return a statement that atomically adds `value` to the element at `pointer`.

    An element that is smaller than any word that the language exchanges is part of an aligned word, of which the rest is kept.
    Where a plain read would race with the exchanges of others, the first exchange expects 0, and finds what there is.
    Raises Unsupported in a language without atomic exchanges.
    """
    syntax = w.language.workgroups
    if syntax is None:
        raise Unsupported(f"AtomicAdd of {d} by several work-items", w.language.name)
    size = min(n for n in syntax.exchanges if n >= d.itemsize)
    element, word = _WORDS[d.itemsize], _WORDS[size]
    name = f"atomic_add_{space.strip('_ ')}_{ALIAS[d]}" if space else f"atomic_add_{ALIAS[d]}"
    to, back = (w.require_helper("reinterpret", a, b) if d.is_float else f"({ALIAS[b]})" for a, b in ((element, d), (d, element)))
    if size == d.itemsize:
        steps, new = "", f"{back}({_sum(w, d, f'{to}(old)')})"
    else:
        pointer_type = f"volatile {space}{ALIAS[word]} *"
        steps = (
            f"  const {ALIAS[word]} byte = (u64)p & {size - 1}ul, shift = byte * 8u, mask = {(1 << d.bits) - 1}u << shift;\n"
            f"  {pointer_type}const at = ({pointer_type})((volatile {space}u8 *)p - byte);\n"
        )
        part = f"{back}({_sum(w, d, f'{to}({ALIAS[element]})(old >> shift)')})"
        new = f"(old & ~mask) | (({ALIAS[word]}){part} << shift)"
    definition = (
        f"{syntax.exchange_pragmas.get(size, '')}"
        f"{w.language.function_head} void {name}(volatile {space}{ALIAS[element]} *{'p' if steps else 'at'}, {ALIAS[d]} x) {{\n"
        f"{steps}"
        f"  {ALIAS[word]} old = {'*at' if syntax.has_atomic_volatile_reads else '0'}, seen;\n"
        f"  while ((seen = {syntax.exchanges[size].format('at', 'old', new)}) != old) old = seen;\n"
        "}\n"
    )
    return f"{w.define_function(name, definition)}((volatile {space}{ALIAS[element]} *){pointer}, {value});"


def _sum(needs: HelperProvider, d: DType, old: str) -> str:
    return render_wrapping_arithmetic(needs, Op.ADD, d, old, "x")
