"""How each op is written in tinygrad: one row per op, the node of the same name wherever tinygrad has one.

Nothing is evaluated here and no result is repaired. Where a name or a form differs:

- Idiv and Mod are FLOORDIV and FLOORMOD; Not is `logical_not`; Div is `div`, since FDIV has no meaning in a tensor graph;
- Mulacc is MUL and ADD, which tinygrad joins again on devices that have the op;
- Shl and Shr shift by counts of the value's own dtype, since tinygrad's verifier wants that;
- CmpGt, CmpGe and CmpLe are written with CMPLT, as tinygrad's own operators write them;
- broadcasting is spelt out with Reshape and Expand;
- a Reduce is the method `_rop`, which drops the reduced axes, and a Reshape that puts them back;
- Load is `clone`, a fresh buffer; a gate, on a Load or a Store, is a `where` with the alternative or the old contents;
- Slice is Shrink and Bitcast of a buffer; Index with a vector is subscription, one axis at a time (R45);
- what is computed for a Call, whose body stores, is `contiguous`, since such a call takes buffers;
- a named variable is a bound Variable of its dtype; an index computed at run time is the integer tensor that it is cast from.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from uops.spec.errors import Unsupported
from uops.spec.ir import dtypes as dt
from uops.spec.ir.dtypes import DType
from uops.spec.ir.node import UOp, toposort
from uops.spec.ir.ops import Op
from uops.spec.ir.scope import VIEWS, scope_nodes

Node = Any


@dataclass(frozen=True, slots=True)
class Library:
    """What is used of tinygrad: its Tensor, UOp and Ops, its dtypes by ours, and the device."""

    tensor: Any
    node: Any
    ops: Any
    dtypes: Mapping[DType, Any]
    device: str


class Source(Protocol):
    """Where free Params and Buffers get their nodes from."""

    def array(self, key: str, u: UOp) -> Node: ...
    def number(self, name: str) -> int: ...


class Scope:
    """The nodes of one graph, or of one body, whose Params are its own (R64)."""

    def __init__(self, library: Library, backend: str, source: Source | None) -> None:
        self.library, self.backend, self.source = library, backend, source
        self._nodes: dict[UOp, Node] = {}

    def __getitem__(self, root: UOp) -> Node:
        for u in toposort(root, gate=_enter):
            if u not in self._nodes and (u is root or u.dtype is not dt.index):
                self._nodes[u] = self._form(u)(self, u)
        return self._nodes[root]

    def _form(self, u: UOp) -> Form:
        if u.dtype is dt.index:
            return INDEX_FORMS.get(u.op, _unsupported)
        return FORMS.get(u.op, _unsupported)

    def values(self, root: UOp) -> list[UOp]:
        """The values of a root, in order."""
        if root.dtype is not dt.void:
            return [root]
        return [v for s in root.src for v in self.values(s)] if root.op in (Op.TUPLE, Op.SINK, Op.GROUP) else []

    def written(self, root: UOp) -> dict[UOp, list[UOp]]:
        """The Buffers that a root writes, and the Stores and Calls that write each."""
        found: dict[UOp, list[UOp]] = {}
        for u in scope_nodes(root):
            for reference in _written_by(u):
                if (base := target(reference)) is not None and base.op is Op.BUFFER:
                    found.setdefault(base, []).append(u)
        return found

    def body(self, root: UOp) -> Node:
        """The body of a Function or Call, in a scope of its own."""
        inner = Scope(self.library, self.backend, None)
        if root.op is Op.TUPLE:
            return inner[root]
        stored: dict[UOp, list[UOp]] = {}
        for u in root.src:
            if u.op is not Op.STORE:
                raise Unsupported(f"{u.op.name} in the body of a Call", self.backend)
            stored.setdefault(target(u.src[0]) or u.src[0], []).append(u)
        return self.library.node.sink(*(inner[p].after(*(inner[s] for s in found)) for p, found in stored.items()))

    def dims(self, vector: UOp) -> tuple[Any, ...]:
        """A shape operand as tinygrad takes it: ints and bound Variables."""
        return tuple(s.arg.value if s.op is Op.CONST else self[s] for s in vector.src)


Form = Callable[[Scope, UOp], Node]


def _enter(u: UOp) -> bool:
    """Bodies have scopes of their own, and indices are asked for by those who need them: only values and effects are entered."""
    return u.op not in (Op.FUNCTION, Op.CALL, Op.CONST, Op.PARAM) and u.dtype is not dt.index


def _written_by(u: UOp) -> tuple[UOp, ...]:
    """The references that an effect writes (R63)."""
    if u.op is Op.STORE:
        return u.src[:1]
    if u.op is not Op.CALL:
        return ()
    arguments = u.src[1:]
    return arguments if u.arg is None or u.arg.written is None else tuple(arguments[k] for k in u.arg.written)


def _is_reference(u: UOp) -> bool:
    while u.op in VIEWS:
        u = u.src[0]
    return u.op in (Op.BUFFER, Op.PARAM)


def target(reference: UOp) -> UOp | None:
    """The Buffer or Param below a view; None below a value."""
    u = reference
    while u.op not in (Op.BUFFER, Op.PARAM):
        if not u.src:
            return None
        u = u.src[0]
    return u


def broadcast(t: Node, shape: tuple[Any, ...]) -> Node:
    """Right-aligned, by Reshape and Expand."""
    if tuple(t.shape) == shape:
        return t
    return t.reshape((1,) * (len(shape) - len(t.shape)) + tuple(t.shape)).expand(shape)


def _unsupported(s: Scope, u: UOp) -> Node:
    raise Unsupported(f"{u.op.name} (the adapter has no tinygrad form for it)", s.backend)


# ---------------------------------------------------------------------------------------------------------------- sources


def _param(s: Scope, u: UOp) -> Node:
    arg, lib = u.arg, s.library
    if arg.slot is None:
        typed = () if u.dtype is dt.index else (lib.dtypes[u.dtype],)
        return lib.node.variable(arg.name, *arg.bounds, *typed).bind(s.source.number(arg.name) if s.source else 0)
    if s.source is not None:
        if not all(isinstance(n, int) for n in u.shape):
            raise Unsupported("an input of symbolic extents", s.backend)
        return s.source.array(f"p{arg.slot}", u)
    return lib.node.param(arg.slot, lib.dtypes[u.dtype], u.shape, lib.device)


def _buffer(s: Scope, u: UOp) -> Node:
    if s.source is None or isinstance(u.arg.device, tuple):
        return _unsupported(s, u)
    return s.source.array(f"b{u.arg.unique}", u)


def _binary(s: Scope, u: UOp) -> Node:
    if s.source is None:
        raise Unsupported("data in the body of a call", s.backend)
    return s.library.tensor(u.arg.data).realize().uop


# --------------------------------------------------------------------------------------------------------------- elements


def _alu(name: str) -> Form:
    def form(s: Scope, u: UOp) -> Node:
        first, *rest = (broadcast(s[x], u.shape) for x in u.src)
        return first.alu(getattr(s.library.ops, name), *rest)

    return form


def _shift(name: str) -> Form:
    def form(s: Scope, u: UOp) -> Node:
        if u.src[1].dtype is not u.dtype:
            raise Unsupported(f"{u.op.name} by a count of another dtype", s.backend)
        return _alu(name)(s, u)

    return form


def _mulacc(s: Scope, u: UOp) -> Node:
    a, b, c = (broadcast(s[x], u.shape) for x in u.src)
    return a.alu(s.library.ops.MUL, b).alu(s.library.ops.ADD, c)


def _where(s: Scope, u: UOp) -> Node:
    condition, x, y = (broadcast(s[x], u.shape) for x in u.src)
    if u.src[0].dtype is not dt.bool_:
        condition = condition.ne(0)
    return condition.alu(s.library.ops.WHERE, x, y)


def _compare(*, swapped: bool, negated: bool) -> Form:
    """`a > b` as b < a, `a >= b` as not (a < b)."""

    def form(s: Scope, u: UOp) -> Node:
        x, y = (broadcast(s[x], u.shape) for x in u.src)
        t = y.alu(s.library.ops.CMPLT, x) if swapped else x.alu(s.library.ops.CMPLT, y)
        return t.logical_not() if negated else t

    return form


# --------------------------------------------------------------------------------------------------- movement and Reduce


def _pad(s: Scope, u: UOp) -> Node:
    t = s[u.src[0]]
    return t.pad(tuple((o, n - o - k) for o, n, k in zip(s.dims(u.src[1]), s.dims(u.src[2]), t.shape)))


def _shrink(s: Scope, u: UOp) -> Node:
    return s[u.src[0]].shrink(tuple((o, o + n) for o, n in zip(s.dims(u.src[1]), s.dims(u.src[2]))))


def _index(s: Scope, u: UOp) -> Node:
    """Outer indexing (R45), from the last axis, so that the axes before keep their numbers."""
    t = s[u.src[0]]
    for k in range(len(u.src) - 1, 0, -1):
        where = u.src[k]
        subscript = list(s.dims(where)) if where.op is Op.STACK else s.dims(UOp(Op.STACK, (where,)))[0]
        t = t[(*(slice(None),) * (k - 1), subscript)]
    return t


def _slice(s: Scope, u: UOp) -> Node:
    t, d = s[u.src[0]], u.src[0].dtype
    start = s.dims(UOp(Op.STACK, (u.src[1],)))[0]
    return t[start : start + u.arg.size * u.arg.dtype.itemsize // d.itemsize].bitcast(s.library.dtypes[u.arg.dtype])


def _reduce(s: Scope, u: UOp) -> Node:
    reduced = s[u.src[0]]._rop(getattr(s.library.ops, u.arg.op.name), u.arg.axes)
    return reduced.reshape(u.shape)


# ------------------------------------------------------------------------------------------------------ calls and memory


def _function(s: Scope, u: UOp) -> Node:
    return s.body(u.src[0]).call(*(s[x] for x in u.src[1:]))


def _call(s: Scope, u: UOp) -> Node:
    return s.body(u.src[0]).call(*(s[x] if _is_reference(x) else s[x].contiguous() for x in u.src[1:]))


def _load(s: Scope, u: UOp) -> Node:
    if u.arg is not None and isinstance(u.arg.device, tuple):
        return _unsupported(s, u)
    t = s[u.src[0]]
    if len(u.src) == 3:
        t = broadcast(s[u.src[2]], u.shape).where(t, s[u.src[1]])
    return t.clone()


def _store(s: Scope, u: UOp) -> Node:
    place = s[u.src[0]]
    value = broadcast(s[u.src[1]], place.shape)
    if len(u.src) == 3:
        value = broadcast(s[u.src[2]], place.shape).where(value, place)
    return place.store(value)


# fmt: off
FORMS: dict[Op, Form] = {
    Op.PARAM:     _param,
    Op.BUFFER:    _buffer,
    Op.CONST:     lambda s, u: s.library.node.const(u.arg.value, s.library.dtypes[u.dtype]),
    Op.BINARY:    _binary,
    Op.PERMUTE:   lambda s, u: s[u.src[0]].permute(u.arg.order),
    Op.FLIP:      lambda s, u: s[u.src[0]].flip(tuple(k for k, f in enumerate(u.arg.flags) if f)),
    Op.RESHAPE:   lambda s, u: s[u.src[0]].reshape(s.dims(u.src[1])),
    Op.EXPAND:    lambda s, u: s[u.src[0]].expand(s.dims(u.src[1])),
    Op.PAD:       _pad,
    Op.SHRINK:    _shrink,
    Op.INDEX:     _index,
    Op.STACK:     lambda s, u: s.library.node.stack(*(s[x] for x in u.src)),
    Op.SLICE:     _slice,
    Op.BITCAST:   lambda s, u: s[u.src[0]].bitcast(s.library.dtypes[u.arg.dtype]),
    Op.REDUCE:    _reduce,
    Op.FUNCTION:  _function,
    Op.CALL:      _call,
    Op.TUPLE:     lambda s, u: s.library.node.maketuple(*(s[x] for x in u.src)),
    Op.GETTUPLE:  lambda s, u: s[u.src[0]].gettuple(u.arg.index),
    Op.LOAD:      _load,
    Op.STORE:     _store,
    Op.AFTER:     lambda s, u: s[u.src[0]].after(*(s[x] for x in u.src[1:])),
    Op.GROUP:     lambda s, u: s.library.node.group(*(s[x] for x in u.src)),
    Op.SINK:      lambda s, u: s.library.node.sink(*(s[x] for x in u.src)),
    Op.CAST:      lambda s, u: s[u.src[0]].cast(s.library.dtypes[u.arg.dtype]),
    Op.RECIP:     _alu("RECIPROCAL"),
    Op.TRUNC:     _alu("TRUNC"),
    Op.ADD:       _alu("ADD"),
    Op.MUL:       _alu("MUL"),
    Op.MAX:       _alu("MAX"),
    Op.MOD:       _alu("FLOORMOD"),
    Op.IDIV:      _alu("FLOORDIV"),
    Op.CMPLT:     _alu("CMPLT"),
    Op.CMPNE:     _alu("CMPNE"),
    Op.XOR:       _alu("XOR"),
    Op.OR:        _alu("OR"),
    Op.AND:       _alu("AND"),
    Op.SHR:       _shift("SHR"),
    Op.SHL:       _shift("SHL"),
    Op.WHERE:     _where,
    Op.NEG:       _alu("NEG"),
    Op.SUB:       _alu("SUB"),
    Op.DIV:       lambda s, u: broadcast(s[u.src[0]], u.shape).div(broadcast(s[u.src[1]], u.shape)),
    Op.EXP2:      _alu("EXP2"),
    Op.LOG2:      _alu("LOG2"),
    Op.SIN:       _alu("SIN"),
    Op.SQRT:      _alu("SQRT"),
    Op.POW:       _alu("POW"),
    Op.MULACC:    _mulacc,
    Op.THREEFRY:  _alu("THREEFRY"),
    Op.NOT:       lambda s, u: s[u.src[0]].logical_not(),
    Op.CMPGT:     _compare(swapped=True, negated=False),
    Op.CMPGE:     _compare(swapped=False, negated=True),
    Op.CMPLE:     _compare(swapped=True, negated=True),
    Op.CMPEQ:     _alu("CMPEQ"),
    Op.DETACH:              lambda s, u: s[u.src[0]].detach(),
    Op.CONTIGUOUS:          lambda s, u: s[u.src[0]].contiguous(),
    Op.CONTIGUOUS_BACKWARD: lambda s, u: s[u.src[0]].contiguous_backward(),
}

#: Indices: a constant, a named variable, and integers computed at run time, as the tensor they are cast from.
INDEX_FORMS: dict[Op, Form] = {
    Op.CONST: lambda s, u: u.arg.value,
    Op.PARAM: _param,
    Op.CAST:  lambda s, u: s[u.src[0]],
    Op.INDEX: lambda s, u: s[u.src[0]][s.dims(UOp(Op.STACK, u.src[1:]))],
}
# fmt: on
