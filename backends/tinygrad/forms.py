"""The tinygrad form of each op: one row per op, which is tinygrad's node of the same name wherever there is one.

Nothing is evaluated here, and no result is corrected. These names and forms differ:

- Idiv and Mod are FLOORDIV and FLOORMOD; Not is `logical_not`; Div is `div`, since FDIV has no meaning in a tensor graph;
- Mulacc is MUL and ADD, which tinygrad fuses again on devices that have the op;
- Shl and Shr shift by counts of the value's dtype, as tinygrad's verifier requires;
- CmpGt, CmpGe and CmpLe are written with CMPLT, as tinygrad's own operators write them;
- broadcasting is explicit, by Reshape and Expand;
- a Reduce is the method `_rop`, which drops the reduced axes, and a Reshape that restores them;
- Load is `clone`, a fresh buffer; the gate of a Load or Store is a `where` with the alternative or the old contents;
- Slice is Shrink and Bitcast of a buffer; Index with a vector is subscription, one axis at a time (R45: outer indexing);
- an argument computed for a Call, whose body stores, is `contiguous`, since such a call takes buffers;
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
from uops.spec.ir.ops import MEMORY_ROOTS, Op
from uops.spec.ir.scope import base_memory, scope_nodes

Node = Any


@dataclass(frozen=True, slots=True)
class TinygradApi:
    """The parts of tinygrad that are used: its Tensor, UOp and Ops, its dtypes by ours, and the device."""

    tensor: Any
    node: Any
    ops: Any
    dtypes: Mapping[DType, Any]
    device: str


class InputNodeSource(Protocol):
    """The source of the nodes of free Params and Buffers."""

    def upload_array_once(self, key: str, u: UOp) -> Node:
        """Return the node of the input array `key`."""
        ...

    def number(self, name: str) -> int:
        """Return the value of a variable."""
        ...


class TranslationScope:
    """The tinygrad nodes of one graph, or of one body, which owns its Params (R64)."""

    def __init__(self, library: TinygradApi, backend: str, source: InputNodeSource | None) -> None:
        self.library, self.backend, self.source = library, backend, source
        self._nodes: dict[UOp, Node] = {}

    def __getitem__(self, root: UOp) -> Node:
        for u in toposort(root, gate=_is_entered):
            if u not in self._nodes and (u is root or u.dtype is not dt.index):
                self._nodes[u] = self._find_form(u)(self, u)
        return self._nodes[root]

    def _find_form(self, u: UOp) -> Form:
        if u.dtype is dt.index:
            return INDEX_FORMS.get(u.op, _refuse_op)
        return FORMS.get(u.op, _refuse_op)

    def map_buffers_to_writers(self, root: UOp) -> dict[UOp, list[UOp]]:
        """Return the Buffers that a root writes, with the Stores and Calls that write each."""
        writers: dict[UOp, list[UOp]] = {}
        for u in scope_nodes(root):
            for reference in _written_references(u):
                if (base := find_memory_along_first_sources(reference)) is not None and base.op is Op.BUFFER:
                    writers.setdefault(base, []).append(u)
        return writers

    def translate_body_in_own_scope(self, root: UOp) -> Node:
        """Translate the body of a Function or Call, in a scope of its own."""
        inner = TranslationScope(self.library, self.backend, None)
        if root.op is Op.TUPLE:
            return inner[root]
        stored: dict[UOp, list[UOp]] = {}
        for u in root.src:
            if u.op is not Op.STORE:
                raise Unsupported(f"{u.op.name} in the body of a Call", self.backend)
            stored.setdefault(find_memory_along_first_sources(u.buffer) or u.buffer, []).append(u)
        return self.library.node.sink(*(inner[p].after(*(inner[s] for s in stores)) for p, stores in stored.items()))

    def shape_operand(self, vector: UOp) -> tuple[Any, ...]:
        """Return a shape operand in tinygrad's form: ints and bound Variables."""
        return tuple(s.arg.value if s.op is Op.CONST else self[s] for s in vector.src)


Form = Callable[[TranslationScope, UOp], Node]


def _is_entered(u: UOp) -> bool:
    """Return True for values and effects; bodies have scopes of their own, and indices are translated by their users."""
    return u.op not in (Op.FUNCTION, Op.CALL, Op.CONST, Op.PARAM) and u.dtype is not dt.index


def _written_references(u: UOp) -> tuple[UOp, ...]:
    """Return the references that an effect writes (R63: a Call lists its written arguments)."""
    if u.op is Op.STORE:
        return (u.buffer,)
    if u.op is not Op.CALL:
        return ()
    return u.arguments if u.arg is None or u.arg.written is None else tuple(u.arguments[k] for k in u.arg.written)


def _is_reference(u: UOp) -> bool:
    return base_memory(u).op in MEMORY_ROOTS


def find_memory_along_first_sources(reference: UOp) -> UOp | None:
    """Return the first Buffer or Param along first sources, the memory of a view; None if there is none."""
    u = reference
    while u.op not in MEMORY_ROOTS:
        if not u.src:
            return None
        u = u.src[0]  # operand, or the buffer of an effect
    return u


def broadcast(t: Node, shape: tuple[Any, ...]) -> Node:
    """Broadcast a tinygrad node, right-aligned, by Reshape and Expand."""
    if tuple(t.shape) == shape:
        return t
    return t.reshape((1,) * (len(shape) - len(t.shape)) + tuple(t.shape)).expand(shape)


def _refuse_op(s: TranslationScope, u: UOp) -> Node:
    raise Unsupported(f"{u.op.name} (the adapter has no tinygrad form for it)", s.backend)


# ---------------------------------------------------------------------------------------------------------------- sources


def _translate_param_to_input_or_placeholder(s: TranslationScope, u: UOp) -> Node:
    arg, lib = u.arg, s.library
    if arg.slot is None:
        dtype = () if u.dtype is dt.index else (lib.dtypes[u.dtype],)
        return lib.node.variable(arg.name, *arg.bounds, *dtype).bind(s.source.number(arg.name) if s.source else 0)
    if s.source is not None:
        if not all(isinstance(n, int) for n in u.shape):
            raise Unsupported("an input of symbolic extents", s.backend)
        return s.source.upload_array_once(f"p{arg.slot}", u)
    return lib.node.param(arg.slot, lib.dtypes[u.dtype], u.shape, lib.device)


def _translate_buffer(s: TranslationScope, u: UOp) -> Node:
    if s.source is None or isinstance(u.arg.device, tuple):
        return _refuse_op(s, u)
    return s.source.upload_array_once(f"b{u.arg.unique}", u)


def _translate_binary(s: TranslationScope, u: UOp) -> Node:
    if s.source is None:
        raise Unsupported("data in the body of a call", s.backend)
    return s.library.tensor(u.arg.data).realize().uop


# --------------------------------------------------------------------------------------------------------------- elements


def _make_alu_form(tinygrad_op: str) -> Form:
    def translate(s: TranslationScope, u: UOp) -> Node:
        first, *rest = (broadcast(s[x], u.shape) for x in u.src)
        return first.alu(getattr(s.library.ops, tinygrad_op), *rest)

    return translate


def _make_shift_form_refusing_mixed_dtypes(tinygrad_op: str) -> Form:
    def translate(s: TranslationScope, u: UOp) -> Node:
        if u.rhs.dtype is not u.dtype:
            raise Unsupported(f"{u.op.name} by a count of another dtype", s.backend)
        return _make_alu_form(tinygrad_op)(s, u)

    return translate


def _translate_mulacc(s: TranslationScope, u: UOp) -> Node:
    a, b, c = (broadcast(s[x], u.shape) for x in u.src)
    return a.alu(s.library.ops.MUL, b).alu(s.library.ops.ADD, c)


def _translate_where(s: TranslationScope, u: UOp) -> Node:
    condition, x, y = (broadcast(s[x], u.shape) for x in u.src)
    if u.condition.dtype is not dt.bool_:
        condition = condition.ne(0)
    return condition.alu(s.library.ops.WHERE, x, y)


def _make_cmplt_form(*, swapped: bool, negated: bool) -> Form:
    """Return the form of a comparison by CMPLT: `a > b` as b < a, `a >= b` as not (a < b)."""

    def translate(s: TranslationScope, u: UOp) -> Node:
        x, y = (broadcast(s[x], u.shape) for x in u.src)
        less = y.alu(s.library.ops.CMPLT, x) if swapped else x.alu(s.library.ops.CMPLT, y)
        return less.logical_not() if negated else less

    return translate


# --------------------------------------------------------------------------------------------------- movement and Reduce


def _translate_pad(s: TranslationScope, u: UOp) -> Node:
    t = s[u.operand]
    return t.pad(tuple((o, n - o - k) for o, n, k in zip(s.shape_operand(u.offsets), s.shape_operand(u.extents), t.shape)))


def _translate_shrink(s: TranslationScope, u: UOp) -> Node:
    return s[u.operand].shrink(tuple((o, o + n) for o, n in zip(s.shape_operand(u.offsets), s.shape_operand(u.extents))))


def _translate_index_with_own_subscript_per_axis(s: TranslationScope, u: UOp) -> Node:
    """Translate outer indexing (R45) from the last axis on, so that the axes before it keep their numbers."""
    t = s[u.operand]
    for axis, position in reversed(list(enumerate(u.positions))):
        subscript = list(s.shape_operand(position)) if position.op is Op.STACK else s.shape_operand(UOp(Op.STACK, (position,)))[0]
        t = t[(*(slice(None),) * axis, subscript)]
    return t


def _translate_slice(s: TranslationScope, u: UOp) -> Node:
    t, d = s[u.operand], u.operand.dtype
    start = s.shape_operand(UOp(Op.STACK, (u.offset,)))[0]
    return t[start : start + u.arg.size * u.arg.dtype.itemsize // d.itemsize].bitcast(s.library.dtypes[u.arg.dtype])


def _translate_reduce(s: TranslationScope, u: UOp) -> Node:
    reduced = s[u.operand]._rop(getattr(s.library.ops, u.arg.op.name), u.arg.axes)
    return reduced.reshape(u.shape)


# ------------------------------------------------------------------------------------------------------ calls and memory


def _translate_function(s: TranslationScope, u: UOp) -> Node:
    return s.translate_body_in_own_scope(u.body).call(*(s[x] for x in u.arguments))


def _translate_call(s: TranslationScope, u: UOp) -> Node:
    return s.translate_body_in_own_scope(u.body).call(*(s[x] if _is_reference(x) else s[x].contiguous() for x in u.arguments))


def _translate_load_as_clone(s: TranslationScope, u: UOp) -> Node:
    if u.arg is not None and isinstance(u.arg.device, tuple):
        return _refuse_op(s, u)
    t = s[u.buffer]
    if u.gate is not None:
        assert u.alternative is not None, "a gated Load has an alternative"
        t = broadcast(s[u.gate], u.shape).where(t, s[u.alternative])
    return t.clone()


def _translate_store(s: TranslationScope, u: UOp) -> Node:
    target = s[u.buffer]
    value = broadcast(s[u.value], target.shape)
    if u.gate is not None:
        value = broadcast(s[u.gate], target.shape).where(value, target)
    return target.store(value)


# fmt: off
FORMS: dict[Op, Form] = {
    Op.PARAM:     _translate_param_to_input_or_placeholder,
    Op.BUFFER:    _translate_buffer,
    Op.CONST:     lambda s, u: s.library.node.const(u.arg.value, s.library.dtypes[u.dtype]),
    Op.BINARY:    _translate_binary,
    Op.PERMUTE:   lambda s, u: s[u.operand].permute(u.arg.order),
    Op.FLIP:      lambda s, u: s[u.operand].flip(tuple(k for k, f in enumerate(u.arg.flags) if f)),
    Op.RESHAPE:   lambda s, u: s[u.operand].reshape(s.shape_operand(u.extents)),
    Op.EXPAND:    lambda s, u: s[u.operand].expand(s.shape_operand(u.extents)),
    Op.PAD:       _translate_pad,
    Op.SHRINK:    _translate_shrink,
    Op.INDEX:     _translate_index_with_own_subscript_per_axis,
    Op.STACK:     lambda s, u: s.library.node.stack(*(s[x] for x in u.src)),
    Op.SLICE:     _translate_slice,
    Op.BITCAST:   lambda s, u: s[u.operand].bitcast(s.library.dtypes[u.arg.dtype]),
    Op.REDUCE:    _translate_reduce,
    Op.FUNCTION:  _translate_function,
    Op.CALL:      _translate_call,
    Op.TUPLE:     lambda s, u: s.library.node.maketuple(*(s[x] for x in u.src)),
    Op.GETTUPLE:  lambda s, u: s[u.packed].gettuple(u.arg.index),
    Op.LOAD:      _translate_load_as_clone,
    Op.STORE:     _translate_store,
    Op.AFTER:     lambda s, u: s[u.buffer].after(*(s[x] for x in u.dependencies)),
    Op.GROUP:     lambda s, u: s.library.node.group(*(s[x] for x in u.src)),
    Op.SINK:      lambda s, u: s.library.node.sink(*(s[x] for x in u.src)),
    Op.CAST:      lambda s, u: s[u.operand].cast(s.library.dtypes[u.arg.dtype]),
    Op.RECIP:     _make_alu_form("RECIPROCAL"),
    Op.TRUNC:     _make_alu_form("TRUNC"),
    Op.ADD:       _make_alu_form("ADD"),
    Op.MUL:       _make_alu_form("MUL"),
    Op.MAX:       _make_alu_form("MAX"),
    Op.MOD:       _make_alu_form("FLOORMOD"),
    Op.IDIV:      _make_alu_form("FLOORDIV"),
    Op.CMPLT:     _make_alu_form("CMPLT"),
    Op.CMPNE:     _make_alu_form("CMPNE"),
    Op.XOR:       _make_alu_form("XOR"),
    Op.OR:        _make_alu_form("OR"),
    Op.AND:       _make_alu_form("AND"),
    Op.SHR:       _make_shift_form_refusing_mixed_dtypes("SHR"),
    Op.SHL:       _make_shift_form_refusing_mixed_dtypes("SHL"),
    Op.WHERE:     _translate_where,
    Op.NEG:       _make_alu_form("NEG"),
    Op.SUB:       _make_alu_form("SUB"),
    Op.DIV:       lambda s, u: broadcast(s[u.lhs], u.shape).div(broadcast(s[u.rhs], u.shape)),
    Op.EXP2:      _make_alu_form("EXP2"),
    Op.LOG2:      _make_alu_form("LOG2"),
    Op.SIN:       _make_alu_form("SIN"),
    Op.SQRT:      _make_alu_form("SQRT"),
    Op.POW:       _make_alu_form("POW"),
    Op.MULACC:    _translate_mulacc,
    Op.THREEFRY:  _make_alu_form("THREEFRY"),
    Op.NOT:       lambda s, u: s[u.operand].logical_not(),
    Op.CMPGT:     _make_cmplt_form(swapped=True, negated=False),
    Op.CMPGE:     _make_cmplt_form(swapped=False, negated=True),
    Op.CMPLE:     _make_cmplt_form(swapped=True, negated=True),
    Op.CMPEQ:     _make_alu_form("CMPEQ"),
    Op.DETACH:              lambda s, u: s[u.operand].detach(),
    Op.CONTIGUOUS:          lambda s, u: s[u.operand].contiguous(),
    Op.CONTIGUOUS_BACKWARD: lambda s, u: s[u.operand].contiguous_backward(),
}

#: Forms of index nodes: a constant, a named variable, and an integer computed at run time, as the tensor that it is cast from.
INDEX_FORMS: dict[Op, Form] = {
    Op.CONST: lambda s, u: u.arg.value,
    Op.PARAM: _translate_param_to_input_or_placeholder,
    Op.CAST:  lambda s, u: s[u.operand],
    Op.INDEX: lambda s, u: s[u.operand][s.shape_operand(UOp(Op.STACK, u.positions))],
}
# fmt: on
