"""Negative controls of kernel cells: the interpreter on launches that each control reads wrongly.

`IgnoresBarriers` runs lanes to their end one after the other, `DropsGates` accesses memory under false gates, `EntersEveryIf` runs
every block, `LosesAdds` reads an element before any other AtomicAdd to it, `RunsFirstVectorLane` computes the first lane of a
vector, `RunsFirstIteration` the first iteration of some axis types. The suite's own tests see each fail cells of the very rows.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from uops.backends.conformance.controls import Interp
from uops.backends.contract import Inputs
from uops.interp import run
from uops.spec.ir import build as b
from uops.spec.ir.args import AddrSpace, RangeArg
from uops.spec.ir.axes import GRID, UNROLLED, WORKGROUP, AxisType
from uops.spec.ir.node import UOp, rebuild, toposort
from uops.spec.ir.ops import Op
from uops.spec.ir.scope import base_memory
from uops.spec.result import Result

#: First axis id and Buffer identity that no kernel of the suite uses.
_FREE = 900


class _MisreadingControl(Interp):
    """A control that evaluates another launch than the one given. `misread` gives that, and may add inputs."""

    def run(self, graph: UOp, inputs: Inputs) -> Result:
        own = dict(inputs)
        return run(self.misread(graph, own), own)

    def misread(self, graph: UOp, inputs: dict[str, object]) -> UOp:
        raise NotImplementedError


def _retype(u: UOp, kinds: Iterable[AxisType], kind: AxisType) -> UOp:
    """Return a Range of one of `kinds` with another type; any other node as it is."""
    return u.replace(arg=replace(u.arg, type=kind)) if u.op is Op.RANGE and u.arg.type in kinds else u


class IgnoresBarriers(_MisreadingControl):
    """A control whose lanes do not wait for each other: each runs to its end before the next. LOCAL memory begins as zeros."""

    name = "control-no-barriers"

    def misread(self, graph: UOp, inputs: dict[str, object]) -> UOp:
        """Return the launch with lanes as sequential loops, and without Barriers."""
        return rebuild(graph, self._change)

    def _change(self, u: UOp) -> UOp:
        if u.op is Op.BARRIER:
            return UOp(Op.GROUP, u.src)
        if u.op is Op.SINK and u.arg is not None:
            return _zero_local_memory_per_workgroup(_turn_specials_into_loops(u))
        return _retype(u, WORKGROUP, AxisType.LOOP)


def _turn_specials_into_loops(body: UOp) -> UOp:
    specials = sorted((u for u in toposort(body) if u.op is Op.SPECIAL), key=lambda u: str(u.arg.name))
    loops = {}
    for k, u in enumerate(specials):
        kind = AxisType.GLOBAL if u.arg.name.startswith("gidx") else AxisType.LOOP
        loops[u] = UOp(Op.RANGE, u.src, RangeArg(_FREE + k, kind))
    if not loops:
        return body
    inside = rebuild(body, lambda u: loops.get(u, u))
    return inside.replace(src=(b.wrap_in_one_end_per_loop(b.group(*inside.src), list(loops.values())),))


def _zero_local_memory_per_workgroup(body: UOp) -> UOp:
    """Return a kernel whose LOCAL memory holds zeros when a workgroup begins."""
    grid = [u for u in toposort(body) if u.op is Op.RANGE and u.arg.type in GRID]

    def fill(u: UOp) -> UOp:
        if u.op is not Op.BUFFER or u.arg.addrspace is not AddrSpace.LOCAL:
            return u
        j = b.range_(u.arg.size, _FREE + 50 + u.arg.unique)
        return b.after(u, b.end(b.store(b.at(b.after(u, j, *grid), j), b.const(0, u.dtype)), j))

    return rebuild(body, fill)


class DropsGates(_MisreadingControl):
    """A control that loads and stores whether a gate is true or not."""

    name = "control-no-gates"

    def misread(self, graph: UOp, inputs: dict[str, object]) -> UOp:
        """Return the launch without the gates of its accesses."""
        kept = {Op.LOAD: 1, Op.STORE: 2}
        return rebuild(graph, lambda u: u.replace(src=u.src[: kept[u.op]]) if u.op in kept else u)


class EntersEveryIf(_MisreadingControl):
    """A control that runs the block of an If whether its gate is true or not."""

    name = "control-no-ifs"

    def misread(self, graph: UOp, inputs: dict[str, object]) -> UOp:
        """Return the launch with a true constant for the gate of each If."""
        return rebuild(graph, lambda u: u.replace(src=(b.const(True),)) if u.op is Op.IF else u)


class LosesAdds(_MisreadingControl):
    """A control that adds without atomicity: all AtomicAdds read what was there at first, and the last one stays."""

    name = "control-no-atomics"

    def misread(self, graph: UOp, inputs: dict[str, object]) -> UOp:
        """Return the launch with a Store of the old contents plus the value for each AtomicAdd, in sequential loops."""
        in_order = rebuild(graph, lambda u: _retype(u, set(AxisType) - {AxisType.REDUCE}, AxisType.LOOP))
        return rebuild(in_order, lambda u: _read_before_all_adds(u, inputs) if u.op is Op.CALL else u)


def _read_before_all_adds(call: UOp, inputs: dict[str, object]) -> UOp:
    arguments = list(call.arguments)
    old: dict[UOp, UOp] = {}  # memory of AtomicAdds -> Param of a copy of its first contents
    for u in toposort(call.body):
        memory = base_memory(u.index) if u.op is Op.ATOMICADD else None
        if memory is not None and memory not in old:
            buffer = arguments[memory.arg.slot]
            old[memory] = b.param(len(arguments), memory.shape, memory.dtype)
            inputs[f"b{_FREE + len(arguments)}"] = inputs[f"b{buffer.arg.unique}"]
            arguments.append(b.buffer(buffer.arg.size, buffer.dtype, unique=_FREE + len(arguments)))

    def add_once(u: UOp) -> UOp:
        if u.op is not Op.ATOMICADD:
            return u
        first = b.load(u.index.replace(src=(old[base_memory(u.index)], *u.index.positions)))
        return b.store(u.index, UOp(Op.ADD, (first, u.value)))

    return call.replace(src=(rebuild(call.body, add_once), *arguments))


class RunsFirstVectorLane(_MisreadingControl):
    """A control that computes the first lane of each vector: of vectorized loops, and of Stores of vectors."""

    name = "control-first-lane"

    def misread(self, graph: UOp, inputs: dict[str, object]) -> UOp:
        """Return the launch with one iteration of each UPCAST and UNROLL loop, and Stores gated to lane 0."""
        return rebuild(graph, self._change)

    def _change(self, u: UOp) -> UOp:
        if u.op is Op.RANGE and u.arg.type in UNROLLED and u.bound.op is Op.CONST and u.bound.const > 1:
            return u.replace(src=(b.const(1, u.bound.dtype),))
        if u.op is Op.STORE and len(u.value.shape) == 1 and isinstance(lanes := u.value.shape[0], int):
            first = b.stack(*(b.const(k == 0) for k in range(lanes)))
            return b.store(u.buffer, u.value, first if u.gate is None else b.and_(u.gate, first))
        return u


class RunsFirstIteration(_MisreadingControl):
    """A control that runs the first iteration of the loops of one type, which a subclass names."""

    kind = AxisType.LOOP

    def misread(self, graph: UOp, inputs: dict[str, object]) -> UOp:
        """Return the launch with bounds of at most 1 for the loops of the type."""
        return rebuild(graph, self._change)

    def _change(self, u: UOp) -> UOp:
        if u.op is not Op.RANGE or u.arg.type is not self.kind:
            return u
        one = b.const(1, u.bound.dtype)
        return u.replace(src=(b.where(b.lt(u.bound, one), u.bound, one) if u.bound.op is not Op.CONST else one,))


def first_iteration_of(kind: AxisType) -> type[RunsFirstIteration]:
    """Return the control that runs the first iteration alone of the loops of `kind`."""
    return type(
        f"RunsFirst{kind.name.title()}", (RunsFirstIteration,), {"kind": kind, "name": f"control-first-{kind.name.lower()}"}
    )
