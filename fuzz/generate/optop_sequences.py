"""Sequences of OptOps that the specification allows, chosen one by one from the list of the legal ones.

Takes: the axes of a kernel, or a target whose compiler schedules the kernels of a program, and a `ChoiceSource`. Gives: OptOps,
each legal after the ones before it. The only choices are whether to go on and which legal OptOp is next, the simplest first. A
driver that shrinks choices therefore shrinks the sequence. Spec: Kernel Optimizations (OptOps); R90 to R98 (rulings on OptOps).
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator, Sequence

from uops.compiler.passes.optimize.schedule.optops import apply, find_rejection_reason
from uops.compiler.passes.optimize.schedule.schedule import Schedule
from uops.compiler.target import MachineModel
from uops.spec.choices import ChoiceSource
from uops.spec.ir.axes import AXIS_TABLE, UNROLLED, WORKGROUP
from uops.spec.optops import (
    Axis,
    Nolocals,
    OptOp,
    Padto,
    Split,
    Swap,
    apply_optop_to_axes,
    illegality_reason,
    sort_axes,
    split_directions,
)

#: Factors and multiples to choose from, the simplest first; a Split may also take the whole axis.
_FACTORS = (2, 3, 4, 5, 7, 8, 16)
#: Maximum numbers of vector lanes, of lanes of a workgroup, and of iterations of a kernel after an OptOp.
_MAX_VECTOR_LANES, _MAX_WORKGROUP_LANES, _MAX_ITERATIONS = 64, 64, 1 << 13


def list_legal_optops(axes: Sequence[Axis], applied: Sequence[OptOp] = ()) -> list[OptOp]:
    """Return the legal OptOps of a kernel with these axes after the OptOps `applied`, the simplest first.

    There is one for each factor and multiple of a short list, but no TC, which needs a product and a target. An OptOp that would
    make the kernel large is left out.
    """
    return list(_list_legal_optops(tuple(sort_axes(axes)), tuple(applied)))


@functools.lru_cache(1024)
def _list_legal_optops(axes: tuple[Axis, ...], applied: tuple[OptOp, ...]) -> tuple[OptOp, ...]:
    legal = (o for o in _enumerate_optops(axes) if illegality_reason(o, axes, applied=applied) is None)
    return tuple(o for o in legal if _stays_small(o, axes))


def _enumerate_optops(axes: Sequence[Axis]) -> Iterator[OptOp]:
    numbers = range(len(axes))
    extents = [a.extent for a in axes]
    for k, extent in enumerate(extents):
        factors = dict.fromkeys((*_FACTORS, extent) if isinstance(extent, int) else _FACTORS)
        yield from (Split(k, f, t, top) for f in factors if f != 1 for t in AXIS_TABLE for top in split_directions(axes[k].type, t))
    yield from (Swap(j, k) for k in numbers for j in numbers if j < k)
    yield from (Padto(k, f) for k, extent in enumerate(extents) for f in _FACTORS if isinstance(extent, int))
    yield Nolocals()


def _stays_small(opt: OptOp, axes: Sequence[Axis]) -> bool:
    """Return True if a kernel is small enough to interpret after an OptOp; an axis of symbolic extent is not split."""
    if isinstance(opt, Split) and not isinstance(axes[opt.axis].extent, int):
        return False
    after = apply_optop_to_axes(opt, axes)
    lanes = math.prod(a.extent for a in after if a.type in UNROLLED and isinstance(a.extent, int))
    group = math.prod(a.extent for a in after if a.type in WORKGROUP and isinstance(a.extent, int))
    iterations = math.prod(max(1, a.extent) for a in after if isinstance(a.extent, int))
    return lanes <= _MAX_VECTOR_LANES and group <= _MAX_WORKGROUP_LANES and iterations <= _MAX_ITERATIONS


def draw_optop_sequence(source: ChoiceSource, axes: Sequence[Axis], max_optops: int = 4) -> list[OptOp]:
    """Draw up to `max_optops` OptOps, each legal after the ones before it."""
    applied: list[OptOp] = []
    current = list(axes)
    while len(applied) < max_optops and source.chance(75):
        legal = list_legal_optops(current, applied)
        if not legal:
            break
        applied.append(source.choice(legal))
        current = apply_optop_to_axes(applied[-1], current)
    return applied


class OptOpDrawer:
    """A choice of schedules that draws legal OptOps for each kernel, for `uops.compiler.passes.optimize.optimize`.

    An OptOp that is legal but that the compiler rejects, as the memory of a kernel or the machine forbids it, is left out.
    """

    def __init__(self, source: ChoiceSource, max_optops: int = 4) -> None:
        self._source, self._max_optops = source, max_optops
        #: The OptOps that were applied, with the numbers of their kernels.
        self.applied: list[tuple[int, OptOp]] = []
        self._kernel = 0

    @property
    def applied_text(self) -> str:
        """The OptOps that were applied, as the text of a sequence (`uops.fuzz.generate.schedules`)."""
        return "; ".join(f"{k}:{o.spell()}" for k, o in self.applied)

    def __call__(self, s: Schedule, machine: MachineModel, buffer_ids: Iterator[int]) -> Schedule:
        """Schedule the next kernel."""
        kernel, self._kernel = self._kernel, self._kernel + 1
        for _ in range(self._max_optops):
            if not s.axes or not self._source.chance(75):
                break
            options = list_legal_optops(s.axes, s.done)
            if not options:
                break
            chosen = self._source.choice(options)
            if find_rejection_reason(s, chosen, machine) is None:
                s = apply(s, chosen, machine)
                self.applied.append((kernel, chosen))
        return s


__all__ = ["OptOpDrawer", "draw_optop_sequence", "list_legal_optops"]
