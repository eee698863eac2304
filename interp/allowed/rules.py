"""What each op does to sets at the strict level: one rule per op, and which ops make a set from exact operands.

A rule takes the overlay, the scope, the node and its cell, and gives the node's set, or None where the cell says it all. The
elementwise rules are functions of the operands' sets alone (`ALU`), so that the core level can build decompositions from them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from uops.interp.allowed import index
from uops.interp.allowed.elementwise import branch
from uops.interp.allowed.elementwise.arithmetic import RULES as ARITHMETIC
from uops.interp.allowed.elementwise.arithmetic import arithmetic, exact_max
from uops.interp.allowed.elementwise.discrete import discrete
from uops.interp.allowed.elementwise.power import power
from uops.interp.allowed.elementwise.transcendental import transcendental
from uops.interp.allowed.layout import LAYOUT, Array, Layout, same_bits
from uops.interp.allowed.move import MOVES, moved, stacked
from uops.interp.allowed.overlay import Overlay, Rule, Rules
from uops.interp.allowed.reduce import float_max, float_product, float_sum, whole_reduce
from uops.interp.allowed.value import Loose, Value, anything, as_loose, from_points, negated, owned, pick, spread
from uops.interp.ops.elementwise import KERNELS
from uops.interp.ops.reduce import FOLDS
from uops.interp.ops.rounding import CASTS
from uops.interp.tensor.memory import Ref, shape_of
from uops.interp.tensor.scope import Scope
from uops.spec.ir import dtypes as dt
from uops.spec.ir.node import UOp
from uops.spec.ir.ops import ALU as ALU_OPS
from uops.spec.ir.ops import COMPARE, MARKERS, Op

#: (op, layout of the first operand, operands) -> set of the result
Apply = Callable[[Op, Layout, Sequence[Value]], Value]
_ndarray = np.ndarray
BOOL = LAYOUT[dt.bool_]


# Elementwise, of operands


def exact(values: Sequence[Value]) -> bool:
    return all(v.__class__ is _ndarray for v in values)


def _plain(op: Op, f: Layout, values: Sequence[Value]) -> Array:
    return np.asarray(KERNELS[op][f.dtype](*values))


def apply(op: Op, f: Layout, values: Sequence[Value]) -> Value:
    """The strict set of an elementwise op, Cast excluded, on operands of layout `f` (Where: of the branches' layout)."""
    if op is Op.WHERE:
        return branch.where(f, condition(values[0]), values[1], values[2])
    if not f.is_float:
        return _plain(op, f, values) if exact(values) else _whole(op, f, values)
    if op in (Op.EXP2, Op.LOG2, Op.SIN):
        return transcendental(op, f, KERNELS[op][f.dtype], values[0])
    if op is Op.POW:
        return power(f, KERNELS[op][f.dtype], values)
    if exact(values):
        best = _plain(op, f, values)
        return exact_max(f, values[0], values[1], best) if op is Op.MAX else best  # type: ignore[arg-type]
    if op in COMPARE:
        return branch.compare(op, f, BOOL, KERNELS[op][f.dtype], values)
    if op is Op.TRUNC:
        return branch.trunc(f, KERNELS[op][f.dtype], as_loose(f, values[0]))
    return arithmetic(op, f, KERNELS[op][f.dtype], values)


def _whole(op: Op, f: Layout, values: Sequence[Value]) -> Value:
    layouts = [f] * len(values)
    if op in (Op.SHL, Op.SHR):  # a count has its own dtype (R25)
        count = values[1]
        layouts[1] = count.layout if isinstance(count, Loose) else BY_NUMPY[count.dtype]
    return discrete(BOOL if op in COMPARE else f, KERNELS[op][f.dtype], values, layouts)


BY_NUMPY = {f.np: f for f in LAYOUT.values() if f.dtype is not dt.index}
BY_NUMPY[np.dtype(object)] = LAYOUT[dt.index]


def condition(p: Value) -> Value:
    """R14: a condition means CmpNe(P, 0)."""
    f = p.layout if isinstance(p, Loose) else BY_NUMPY[p.dtype]
    if f is BOOL:
        return p
    zero = np.zeros((), f.np)
    if isinstance(p, Loose) and not f.is_float:
        return discrete(BOOL, KERNELS[Op.CMPNE][f.dtype], (p, zero), (f, f))
    return branch.compare(Op.CMPNE, f, BOOL, KERNELS[Op.CMPNE][f.dtype], (p, zero))


def convert(f: Layout, r: Layout, value: Value) -> Value:
    """The strict set of a Cast."""
    fn = CASTS[f.dtype, r.dtype]
    return branch.cast(f, r, fn, value) if isinstance(value, Loose) else np.asarray(fn(value))


def unite(f: Layout, a: Value, b: Value) -> Value:
    """Both sets, the best of the first; of the same shape."""
    if not isinstance(a, Loose) and not isinstance(b, Loose):
        same = same_bits(f, a, b).all() if f.is_float else np.array_equal(a, b)
        return a if same else from_points(f, np.stack([a, b]))
    every = np.arange(int(np.prod(a.shape)))
    x, y = pick(f, a, a.shape, every), pick(f, b, a.shape, every)
    shape = a.shape
    return branch.union(f, x, y, x.best).map(lambda c, lead: c.reshape(c.shape[:lead] + shape))


# Elementwise, as nodes


def _alu(o: Overlay, scope: Scope, u: UOp, cell: Any) -> Value | None:
    op, src = u.op, u.src
    f = LAYOUT[src[1].dtype if op is Op.WHERE else src[0].dtype]
    values = [o.value(scope, s) for s in src]
    if op in COMPARE and src[0] is src[1] and f.is_float and isinstance(values[0], Loose):
        return branch.compare_same(KERNELS[op][f.dtype], values[0], BOOL)
    return apply(op, f, values)


def _maximum(o: Overlay, scope: Scope, u: UOp, cell: Any) -> Value | None:
    """Most often no result is a zero, and nothing is to do."""
    if o.is_exact(scope, u) and (not u.dtype.is_float or cell.all()):
        return None
    return _alu(o, scope, u, cell)


def _sum(o: Overlay, scope: Scope, u: UOp, cell: Any) -> Value | None:
    """Add and Sub of a product may be one rounding (R16); both readings, where the operand is a Mul seen through movement."""
    plain = None if o.is_exact(scope, u) else _alu(o, scope, u, cell)
    if not u.dtype.is_float:
        return plain
    f = LAYOUT[u.dtype]
    for k, s in enumerate(u.src):
        factors = o.product(scope, s)
        if factors is None:
            continue
        a, b = factors
        other = o.value(scope, u.src[1 - k])
        if u.op is Op.SUB:
            a, other = (a, negated(other)) if k == 0 else (negated(a), other)
        fused = apply(Op.MULACC, f, (a, b, other))
        base: Value = cell if plain is None else plain
        plain = unite(f, base, spread(fused, base.shape))
    return plain


def _cast(o: Overlay, scope: Scope, u: UOp, cell: Any) -> Value | None:
    return convert(LAYOUT[u.src[0].dtype], LAYOUT[u.dtype], o.value(scope, u.src[0]))


# Everything else


def _reduce(o: Overlay, scope: Scope, u: UOp, cell: Any) -> Value | None:
    f, axes, op = LAYOUT[u.dtype], u.arg.axes, u.arg.op
    if not f.is_float and o.is_exact(scope, u):
        return None
    v = o.value(scope, u.src[0])
    if not axes or 0 in v.shape:
        return v if not axes else None
    if not f.is_float:
        assert isinstance(v, Loose)
        fold = FOLDS[op][u.dtype]
        return whole_reduce(op, f, lambda x: np.asarray(fold(x, axes)), v, axes)
    if op is Op.ADD:
        return float_sum(f, v, axes, cell, o.product(scope, u.src[0]))
    return float_product(f, v, axes, cell) if op is Op.MUL else float_max(f, v, axes, cell)


def _is_view(o: Overlay, scope: Scope, u: UOp, cell: Any) -> bool:
    """A view of memory has no set of its own, unless it is not known which elements it shows."""
    return cell.__class__ is Ref and u.src[0] not in o.loose[scope]


def _shown(u: UOp, cell: Any) -> Array:
    """The array of a cell; of a view that was never read as a value, one of its shape."""
    if cell.__class__ is not Ref:
        return cell  # type: ignore[no-any-return]
    return cell.value if cell.value is not None else np.zeros(shape_of(cell), LAYOUT[u.dtype].np)


def _move(o: Overlay, scope: Scope, u: UOp, cell: Any) -> Value | None:
    if _is_view(o, scope, u, cell):
        return None
    cell = _shown(u, cell)
    return moved(u, o.value(scope, u.src[0]), cell.shape, o.more(scope, u))


def _index(o: Overlay, scope: Scope, u: UOp, cell: Any) -> Value | None:
    positions = [o.value(scope, s) for s in u.src[1:]]
    known = exact(positions)
    if known and _is_view(o, scope, u, cell):
        return None
    f, source = LAYOUT[u.dtype], scope.cells[u.src[0]]
    if cell.__class__ is Ref:
        cell = _shown(u, cell)
        if source.storage.writes:  # what the other elements held at the time is not kept
            return anything(f, cell)
    if known:
        return moved(u, o.value(scope, u.src[0]), cell.shape, positions)  # type: ignore[arg-type]
    return index.gather(f, u, o.value(scope, u.src[0]), positions, cell)


def _stack(o: Overlay, scope: Scope, u: UOp, cell: Any) -> Value | None:
    return stacked(LAYOUT[u.dtype], [o.value(scope, s) for s in u.src])


def _pass(o: Overlay, scope: Scope, u: UOp, cell: Any) -> Value | None:
    return None if _is_view(o, scope, u, cell) else o.value(scope, u.src[0])


def _load(o: Overlay, scope: Scope, u: UOp, cell: Any) -> Value | None:
    if len(u.src) == 1:
        return o.value(scope, u.src[0])
    f = LAYOUT[u.dtype]
    alt, gate = o.value(scope, u.src[1]), o.value(scope, u.src[2])
    source = scope.cells[u.src[0]]
    if source.__class__ is not Ref:
        return branch.where(f, gate, o.value(scope, u.src[0]), alt)
    if isinstance(gate, Loose):
        return anything(f, cell, np.broadcast_to(~gate.exact(), cell.shape))
    patches = o.patches(source.storage, o.bit(scope, u))
    found = None if patches is None else patches.read(source, cell)
    return branch.select(f, gate, cell if found is None else found, alt)


def _bitcast(o: Overlay, scope: Scope, u: UOp, cell: Any) -> Value | None:
    """The bits of a NaN made by arithmetic are free (R20)."""
    if _is_view(o, scope, u, cell):
        return None
    cell = _shown(u, cell)
    f, r = LAYOUT[u.src[0].dtype], LAYOUT[u.dtype]
    v = o.value(scope, u.src[0])
    if not isinstance(v, Loose):
        if not f.is_float or not np.isnan(v).any() or o.keeps_bits(scope, u.src[0]):
            return None
        v = as_loose(f, v)
    return branch.bitcast(f, r, owned(v)).map(lambda x, lead: x.reshape(x.shape[:lead] + cell.shape))


def _slice(o: Overlay, scope: Scope, u: UOp, cell: Any) -> Value | None:
    if _is_view(o, scope, u, cell):
        return None
    cell = _shown(u, cell)
    v = o.value(scope, u.src[0])
    f, r = LAYOUT[u.src[0].dtype], LAYOUT[u.dtype]
    first = int(o.more(scope, u)[0])
    size = u.arg.size
    if f is r:
        return v.map(lambda x, lead: x[..., first : first + size]) if isinstance(v, Loose) else None
    if r.np.itemsize < f.np.itemsize or isinstance(v, Loose):
        return _slice_bytes(f, r, v, first, size, cell)
    return None


def _slice_bytes(f: Layout, r: Layout, v: Value, first: int, size: int, cell: Array) -> Value | None:
    """Bytes of an element with more than one value may be anything."""
    if not isinstance(v, Loose):
        return None
    own, new = f.np.itemsize, r.np.itemsize
    lost = np.zeros(size, np.bool_)
    open_ = np.repeat(~v.exact(), own)[first * own : first * own + size * new]
    lost |= open_.reshape(size, new).any(1)
    return anything(r, cell, lost) if lost.any() else None


def _store(o: Overlay, scope: Scope, u: UOp, cell: Any) -> Value | None:
    o.store(scope, u)
    return None


# fmt: off
TABLE: dict[Op, Rule] = {
    **dict.fromkeys(ALU_OPS, _alu),
    Op.ADD: _sum, Op.SUB: _sum, Op.MAX: _maximum, Op.CAST: _cast,
    Op.REDUCE: _reduce,
    **dict.fromkeys(MOVES, _move),
    Op.INDEX: _index, Op.STACK: _stack, Op.SLICE: _slice, Op.BITCAST: _bitcast,
    Op.LOAD: _load, Op.AFTER: _pass, **dict.fromkeys(MARKERS, _pass),
    Op.STORE: _store,
}
# fmt: on
SPARKS = frozenset({Op.EXP2, Op.LOG2, Op.SIN, Op.POW, Op.ADD, Op.SUB, Op.MAX, Op.REDUCE, Op.BITCAST, Op.STORE})
STRICT = Rules(TABLE, SPARKS)
assert set(ARITHMETIC) <= set(ALU_OPS)
