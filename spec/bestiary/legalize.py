"""`legalize`: the second document's ops in terms of the core's (R100 to R117).

Takes a graph that `verify` accepts in BESTIARY. Gives one with the same meaning in which no op of the bestiary is left.
"""

from __future__ import annotations

from uops.spec.bestiary import lower as lw
from uops.spec.bestiary.lower import Lower, Lowering
from uops.spec.errors import SpecError
from uops.spec.ir.args import AddrSpace
from uops.spec.ir.node import UOp, substitute, toposort
from uops.spec.ir.ops import Op

# fmt: off
LEGALIZE: dict[Op, Lower] = {
    Op.B_RANGE:        lw.range_,
    Op.REDUCE_AXIS:    lw.reduce_axis,
    Op.B_REDUCE:       lw.reduce_ranges,
    Op.ALLREDUCE:      lw.allreduce,
    Op.B_BUFFER:       lw.buffer,
    Op.BUFFERIZE:      lw.bufferize,
    Op.B_INDEX:        lw.index,
    Op.POINTER_INDEX:  lw.pointer_index,
    Op.B_LOAD:         lw.load,
    Op.B_STORE:        lw.store,
    Op.B_PROGRAM:      lw.program,
    Op.PROGRAM_BINARY: lw.program_binary,
    Op.B_BARRIER:      lw.barrier,
    Op.VECTORIZE:      lw.vectorize,
    Op.GEP:            lw.gep,
    Op.VCONST:         lw.vconst,
    Op.CAT:            lw.cat,
    Op.PTRCAT:         lw.cat,
    Op.UNROLL:         lw.unroll,
    Op.CONTRACT:       lw.contract,
    Op.B_IF:           lw.if_,
    Op.B_PARAM:        lw.param,
    Op.DEFINE_LOCAL:   lw.define(AddrSpace.LOCAL),
    Op.DEFINE_VAR:     lw.define_var,
    Op.DEFINE_REG:     lw.define(AddrSpace.REG),
    Op.BIND:           lw.same,
    Op.UNIQUE:         lw.absorbed,
    Op.LUNIQUE:        lw.absorbed,
    Op.DEVICE:         lw.absorbed,
    Op.B_PAD:          lw.pad,
    Op.B_SHRINK:       lw.shrink,
    Op.COPY:           lw.copy,
    Op.BUFFER_VIEW:    lw.buffer_view,
    Op.MSTACK:         lw.mstack,
    Op.MSELECT:        lw.mselect,
    Op.MULTI:          lw.multi,
    Op.PRECAST:        lw.same,
    Op.CUSTOMI:        lw.customi,
    Op.MIN:            lw.minimum,
}
# fmt: on
#: Core ops whose sources have a meaning of their own in the second document.
_FORMS: dict[Op, Lower] = {Op.CALL: lw.call, Op.LINEAR: lw.linear}


def bind(root: UOp) -> UOp:
    """R112: every bound variable, and every BIND of it, replaced by the value."""
    while True:
        binds = [u for u in toposort(root) if u.op is Op.BIND]
        if not binds:
            return root
        values = {u.src[0]: u.src[1] for u in binds}
        root = substitute(root, values | {u: u.src[1] for u in binds})


def legalize(root: UOp) -> UOp:
    """`root` in core ops; raises SpecError where a node has no meaning of its own (a DEVICE as root)."""
    root = bind(root)
    order = toposort(root)
    low = Lowering(order)
    for u in order:
        low.done[u] = _legalized(u, low)
    result = low[root]
    foreign = next((u for u in toposort(result) if u.op in LEGALIZE), None)
    if foreign is not None:
        raise SpecError(f"{foreign.op.name} has no meaning of its own here")
    return result


def _legalized(u: UOp, low: Lowering) -> UOp:
    lower = LEGALIZE.get(u.op)
    if lower is not None:
        return lower(u, low)
    if u.op is Op.ENDIF:  # the block that it ended is the group of gated effects (R114)
        return low[u.src[0]] if u.src[0].op is Op.B_IF else u.replace(src=low.src(u))
    if u.op in _FORMS:
        return _FORMS[u.op](u, low)
    src = low.src(u)
    return u if src == u.src else u.replace(src=src)
