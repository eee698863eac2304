"""How each op of a callified body is made of elements of its sources.

`SPREAD[op](state, u, place)` says which elements of which sources an element of the result needs; a movement op with one source
element is in `views.STEP` instead. `READ[op](state, u, place, parts)` is the expression of the element, given theirs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from uops.compiler.ir.accumulators import identity
from uops.compiler.ir.affine import number
from uops.compiler.ir.views import STEP, TRUE, ZERO
from uops.compiler.passes.rangeify.elements import place_of
from uops.compiler.passes.rangeify.kernels import Part, Place, flat_param, within
from uops.compiler.passes.rangeify.state import Rangeify
from uops.compiler.passes.rangeify.storage import UINT, access, as_bool, as_dtype
from uops.spec.ir import build as B
from uops.spec.ir import dtypes as dt
from uops.spec.ir.args import CastArg, ReduceArg
from uops.spec.ir.axes import AxisType
from uops.spec.ir.derive.shape import dim_node
from uops.spec.ir.node import Dim, UOp, substitute, toposort
from uops.spec.ir.ops import ALU, Op

Parts = Sequence[UOp]


# Which elements are needed


def _elementwise(state: Rangeify, u: UOp, place: Place) -> list[Part]:
    return [(s, state.aligned(place, s)) for s in u.src]


def _nothing(state: Rangeify, u: UOp, place: Place) -> list[Part]:
    return []


def _stack(state: Rangeify, u: UOp, place: Place) -> list[Part]:
    """Every source at the inner index; only one where the outer index is known."""
    inner = place._replace(coords=place.coords[1:])
    k = place.coords[0]
    if k.op is Op.CONST and 0 <= k.arg.value < len(u.src):
        return [(u.src[k.arg.value], inner)]
    return [(s, inner) for s in u.src]


def _reduce(state: Rangeify, u: UOp, place: Place) -> list[Part]:
    """The source on a fresh loop per reduced axis; of a closed form, what it is made of; nothing, where there is nothing."""
    if u in state.closed:
        return _closed(state, u, place)
    s = u.src[0].shape
    if 0 in s:
        return []
    kernel = place.kernel
    index = tuple([kernel.loop(s[k], AxisType.REDUCE) if k in u.arg.axes else i for k, i in enumerate(place.coords)])
    kernel.nest((index[k] for k in sorted(u.arg.axes)), frozenset(place.loops()))
    return [(u.src[0], place._replace(coords=index))]


def _closed(state: Rangeify, u: UOp, place: Place) -> list[Part]:
    """The leaves of the closed form; those that an index or a gate is made of are needed before they are computed."""
    form = state.closed[u]
    loops = {r: place.kernel.loop(u.src[0].shape[k], AxisType.REDUCE) for k, r in form.left.items()}
    place.kernel.nest((loops[form.left[k]] for k in sorted(form.left)), frozenset(place.loops()))
    put = state.put[u, place] = {**place_of(form, place.coords), **loops}
    found: dict[UOp, Part] = {}
    for leaf, (node, coords, gate) in form.leaves.items():
        used = (i for i in (*coords, gate) if i is not None)
        early = {x: state.hole(*found[x]) for x in dict.fromkeys(y for i in used for y in toposort(i)) if x in found}
        index = tuple(state.at.simplify(substitute(i, {**put, **early})) for i in coords)
        own = None if gate is None else state.at.simplify(substitute(gate, {**put, **early}))
        found[leaf] = node, Place(place.kernel, index, state.at.both(place.gate, own if own is None else state.at.known(own)))
    return list(found.values())


def _load(state: Rangeify, u: UOp, place: Place) -> list[Part]:
    """The buffer's element where the gate holds, and alt (R52)."""
    if len(u.src) == 1:
        return [(u.src[0], place)]
    buf, alt, gate = u.src
    at_gate = state.aligned(place, gate)
    held = state.at.both(place.gate, state.hole(gate, at_gate))
    return [(buf, place._replace(gate=held)), (alt, state.aligned(place, alt)), (gate, at_gate)]


def _index(state: Rangeify, u: UOp, place: Place) -> list[Part]:
    """The source at the operands' values; a value that min_max does not prove to be inside gates the access (R45)."""
    left, index, gate = place.coords, [], place.gate
    for i, n in zip(u.src[1:], u.src[0].shape):
        own, left = left[: len(i.shape)], left[len(i.shape) :]
        position, inside = operand(state, i, place._replace(coords=own), n)
        index.append(position)
        gate = state.at.both(gate, inside)
    return [(u.src[0], Place(place.kernel, (*index, *left), gate))]


def operand(state: Rangeify, i: UOp, place: Place, n: Dim) -> tuple[UOp, UOp | None]:
    """The position that an index operand gives on an axis of `n`, and the gate under which there is one."""
    if i.op is Op.CONST:
        position = number(int(i.arg.value))
        return position, state.at.inside(position, ZERO, dim_node(n))
    wide = i.op is Op.CAST and i.dtype is dt.index and (i.src[0].dtype is dt.uint64 or i.src[0].dtype.is_float)
    source = i.src[0] if wide else i
    value = state.hole(source, place)
    if source.dtype is dt.uint64:  # compared and folded before it becomes an index, which int64 could not hold (R08)
        size = UOp(Op.CAST, (dim_node(n),), CastArg(dt.uint64))
        return state.at.simplify(B.cast(UOp(Op.MOD, (value, size)), dt.index)), state.at.known(state.at.alu(Op.CMPLT, value, size))
    if source.dtype.is_float:
        value = B.cast(value, dt.int64)
    value = B.cast(value, dt.index)
    inside = state.at.inside(value, ZERO, dim_node(n))
    if inside is not None and not _fits(value):  # so that the address fits where the gate holds
        value = state.at.alu(Op.MOD, value, dim_node(n))
    return value, inside


def _fits(value: UOp) -> bool:
    bounds = value.min_max
    return bounds is not None and dt.int32.min <= bounds[0] and bounds[1] <= dt.int32.max


def _bitcast(state: Rangeify, u: UOp, place: Place) -> list[Part]:
    """Little-endian (R46): a smaller element is a part of a source element, a larger one is made of several."""
    old, new = u.src[0].dtype.itemsize, u.dtype.itemsize
    if old == new:
        return [(u.src[0], place)]
    *outer, j = place.coords
    return [(u.src[0], place._replace(coords=(*outer, k))) for k in _pieces(state, j, old, new)]


def _slice(state: Rangeify, u: UOp, place: Place) -> list[Part]:
    """A Bitcast that starts at element `offset` of the source."""
    old, new = u.src[0].dtype.itemsize, u.dtype.itemsize
    pieces = _pieces(state, place.coords[0], old, new)
    n = dim_node(u.src[0].shape[0])
    offset, inside = operand(state, u.src[1], place._replace(coords=()), n)
    gate = state.at.both(place.gate, inside)
    return [(u.src[0], place._replace(coords=(state.at.alu(Op.ADD, k, offset),), gate=gate)) for k in pieces]


def _pieces(state: Rangeify, j: UOp, old: int, new: int) -> list[UOp]:
    """The source elements, of `old` bytes, that element j of `new` bytes lies in."""
    if new <= old:
        return [state.at.alu(Op.IDIV, j, number(old // new))]
    ratio = number(new // old)
    return [state.at.alu(Op.ADD, UOp(Op.MUL, (j, ratio)), number(k)) for k in range(new // old)]


SPREAD: dict[Op, Callable[[Rangeify, UOp, Place], list[Part]]] = {
    **dict.fromkeys(ALU, _elementwise),
    **dict.fromkeys((Op.CONST, Op.PARAM, Op.BINARY), _nothing),
    Op.STACK: _stack,
    Op.REDUCE: _reduce,
    Op.LOAD: _load,
    Op.CONTIGUOUS: lambda state, u, place: [(u.src[0], place)],
    Op.INDEX: _index,
    Op.BITCAST: _bitcast,
    Op.SLICE: _slice,
}


# What the element is


def _compute(state: Rangeify, u: UOp, place: Place, parts: Parts) -> UOp:
    return UOp(u.op, tuple(parts), u.arg)


def _choose(state: Rangeify, u: UOp, place: Place, parts: Parts) -> UOp:
    """Where, whose condition becomes bool (R14)."""
    return UOp(Op.WHERE, (as_bool(parts[0]), *parts[1:]))


def _constant(state: Rangeify, u: UOp, place: Place, parts: Parts) -> UOp:
    return u


def _param(state: Rangeify, u: UOp, place: Place, parts: Parts) -> UOp:
    if u.arg.name is not None:
        return u
    return access(flat_param(u), state.at.flatten(place.coords, u.shape), place.gate)


def _binary(state: Rangeify, u: UOp, place: Place, parts: Parts) -> UOp:
    return access(u, place.coords[0], place.gate)


def _select(state: Rangeify, u: UOp, place: Place, parts: Parts) -> UOp:
    """Stack: the source that the outer index names."""
    chosen = parts[-1]
    for k in range(len(parts) - 2, -1, -1):
        chosen = UOp(Op.WHERE, (UOp(Op.CMPEQ, (place.coords[0], number(k))), parts[k], chosen))
    return chosen


def _padded(state: Rangeify, u: UOp, place: Place, parts: Parts) -> UOp:
    gate = STEP[Op.PAD](state.at, u, place.coords).gate or TRUE
    return parts[0] if _is_zero_outside(parts[0], gate) else UOp(Op.WHERE, (gate, parts[0], B.const(0, u.dtype)))


def _is_zero_outside(value: UOp, gate: UOp) -> bool:
    """Whether a Load gives 0 wherever the gate is false, since its own gate demands all that this one does (R52)."""
    if value.op is not Op.LOAD or len(value.src) != 3 or value.src[1] is not B.const(0, value.dtype):
        return False
    return _conjuncts(gate) <= _conjuncts(value.src[2])


def _conjuncts(gate: UOp) -> set[UOp]:
    return _conjuncts(gate.src[0]) | _conjuncts(gate.src[1]) if gate.op is Op.AND else {gate}


def _accumulate(state: Rangeify, u: UOp, place: Place, parts: Parts) -> UOp:
    if u in state.closed:
        form = state.closed[u]
        put = state.put[u, place]
        read = {leaf: within(part, leaf) for leaf, part in zip(form.leaves, parts, strict=True)}
        value = substitute(form.value, {**put, **read})
        left = [put[form.left[k]] for k in sorted(form.left)]
        return UOp(Op.REDUCE, (value, *left), ReduceArg(u.arg.op)) if left else value
    if not parts:
        return identity(u.arg.op, u.dtype)
    ranges = [i for k, i in enumerate(state.parts[u, place][0][1].coords) if k in u.arg.axes and i is not ZERO]
    return UOp(Op.REDUCE, (parts[0], *ranges), ReduceArg(u.arg.op)) if ranges else parts[0]


def _loaded(state: Rangeify, u: UOp, place: Place, parts: Parts) -> UOp:
    return parts[0] if len(parts) == 1 else UOp(Op.WHERE, (parts[2], parts[0], parts[1]))


def _first(state: Rangeify, u: UOp, place: Place, parts: Parts) -> UOp:
    return parts[0]


def _reinterpret(state: Rangeify, u: UOp, place: Place, parts: Parts) -> UOp:
    """Bitcast and Slice: the bits of a source element, a field of them, or several joined."""
    old, new = u.src[0].dtype, u.dtype
    if old.itemsize == new.itemsize:
        return as_dtype(parts[0], new)
    bits = [as_dtype(p, UINT[old.itemsize]) for p in parts]
    if new.itemsize < old.itemsize:
        ratio = number(old.itemsize // new.itemsize)
        count = B.cast(UOp(Op.MUL, (UOp(Op.MOD, (place.coords[-1], ratio)), number(new.bits))), bits[0].dtype)
        return as_dtype(B.cast(UOp(Op.SHR, (bits[0], count)), UINT[new.itemsize]), new)
    whole = UINT[new.itemsize]
    joined = B.cast(bits[0], whole)
    for k, b in enumerate(bits[1:], 1):
        joined = UOp(Op.OR, (joined, UOp(Op.SHL, (B.cast(b, whole), B.const(k * old.bits, whole)))))
    return as_dtype(joined, new)


READ: dict[Op, Callable[[Rangeify, UOp, Place, Parts], UOp]] = {
    **dict.fromkeys(ALU, _compute),
    **dict.fromkeys(STEP, _first),
    **dict.fromkeys((Op.CONTIGUOUS, Op.INDEX), _first),
    **dict.fromkeys((Op.BITCAST, Op.SLICE), _reinterpret),
    Op.WHERE: _choose,
    Op.CONST: _constant,
    Op.PARAM: _param,
    Op.BINARY: _binary,
    Op.STACK: _select,
    Op.PAD: _padded,
    Op.REDUCE: _accumulate,
    Op.LOAD: _loaded,
}
