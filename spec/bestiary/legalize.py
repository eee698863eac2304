"""`legalize`, the lowering of the second document's ops to core ops (R100 to R117).

Takes a graph that `verify` accepts in the BESTIARY dialect. Gives a graph with the same meaning and without ops of the bestiary.
"""

from __future__ import annotations

from uops.spec.bestiary import lower as lw
from uops.spec.bestiary.lower import LegalizeState, Lower
from uops.spec.bestiary.removal import load_or_recompute
from uops.spec.bestiary.tensor_core import lower_wmma_grid_to_register_accumulation
from uops.spec.errors import SpecError
from uops.spec.ir.args import AddrSpace
from uops.spec.ir.node import UOp, substitute, toposort
from uops.spec.ir.ops import Op

# fmt: off
#: Op of the bestiary -> the function that lowers its nodes.
LEGALIZE: dict[Op, Lower] = {
    Op.B_RANGE:        lw.lower_range_with_deps_in_bound,
    Op.REDUCE_AXIS:    lw.reduce_axis,
    Op.B_REDUCE:       lw.reduce_all_lanes_then_ranges,
    Op.ALLREDUCE:      lw.allreduce,
    Op.B_BUFFER:       lw.buffer,
    Op.BUFFERIZE:      lw.bufferize,
    Op.B_INDEX:        lw.index,
    Op.POINTER_INDEX:  lw.lower_byte_offset_to_element_index,
    Op.B_LOAD:         load_or_recompute,
    Op.B_STORE:        lw.store,
    Op.B_PROGRAM:      lw.lower_to_most_lowered_stage,
    Op.PROGRAM_BINARY: lw.program_binary,
    Op.B_BARRIER:      lw.barrier,
    Op.VECTORIZE:      lw.vectorize,
    Op.GEP:            lw.gep,
    Op.VCONST:         lw.vconst,
    Op.CAT:            lw.cat,
    Op.PTRCAT:         lw.cat,
    Op.UNROLL:         lw.stack_scalar_at_each_lanes_axis_values,
    Op.CONTRACT:       lw.splat_scalar_or_permute_lanes,
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
    Op.MULTI:          lw.lower_multi_to_sharding_copy,
    Op.PRECAST:        lw.same,
    Op.CUSTOMI:        lw.customi,
    Op.MIN:            lw.minimum,
}
# fmt: on
#: Core ops that have another meaning on sources of the second document.
_CORE_OPS: dict[Op, Lower] = {
    Op.CALL: lw.call,
    Op.LINEAR: lw.flatten_linear_to_core_instructions,
    Op.WMMA: lower_wmma_grid_to_register_accumulation,
}


def substitute_bound_variables_transitively(root: UOp) -> UOp:
    """Replace every bound variable and every BIND by the variable's value, in values too (R112, BIND).

    Raises SpecError if the value of a variable depends on the variable itself.
    """
    values = {replaced: u.value for u in toposort(root) if u.op is Op.BIND for replaced in (u, u.variable)}
    for _ in range(len(values) + 1):
        if values.keys().isdisjoint(toposort(root)):
            return root
        root = substitute(root, values)
    raise SpecError("the value of a bound variable depends on the variable itself (R112)", claim="BIND.C3")


def legalize(root: UOp) -> UOp:
    """Return a graph in core ops; raises SpecError if a node has no meaning by itself, as a DEVICE as root."""
    root = substitute_bound_variables_transitively(root)
    order = toposort(root)
    state = LegalizeState(order)
    for u in order:
        state.core_nodes[u] = _lower_or_rebuild_on_core_sources(u, state)
    result = state[root]
    foreign = next((u for u in toposort(result) if u.op in LEGALIZE), None)
    if foreign is not None:
        raise SpecError(f"{foreign.op.name} has no meaning of its own here")
    return result


def _lower_or_rebuild_on_core_sources(u: UOp, state: LegalizeState) -> UOp:
    lower = LEGALIZE.get(u.op)
    if lower is not None:
        return lower(u, state)
    if u.op is Op.ENDIF and u.if_node.op is Op.B_IF:  # the block that it ends is a Group of gated effects (R114)
        return state[u.if_node]
    if u.op in _CORE_OPS:
        return _CORE_OPS[u.op](u, state)
    src = state.core_sources(u)
    return u if src == u.src else u.replace(src=src)
