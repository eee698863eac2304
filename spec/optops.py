"""OptOps: the scheduling transforms of a kernel's ranges, their table and their legality (R90 to R98).

The axes of a kernel, `Axis(id, type, extent)`, describe its iteration space. They are numbered by the priority of their type, then
by id (R95, axis number). `illegality_reason` checks an OptOp, `apply_optop` returns the axes after it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from uops.spec.ir.args import WmmaArg
from uops.spec.ir.axes import AXIS_TABLE, OUTPUT_LOOPS, AxisType, Direction
from uops.spec.ir.axes import WORKGROUP as WORKGROUP
from uops.spec.ir.node import Dim, UOp
from uops.spec.ir.record import dataclass
from uops.spec.ir.sizes import divides


@dataclass(frozen=True, slots=True)
class Axis:
    """A Range of a kernel: its axis id, its type and its extent (an int or an index expression)."""

    id: int
    type: AxisType
    extent: Dim


@dataclass(frozen=True, slots=True)
class Split:
    """An OptOp that splits an axis of extent n into (n / factor, factor), or (factor, n / factor) with `top`.

    The part of extent `factor` gets the type `target`.
    """

    axis: int
    factor: int
    target: AxisType
    top: bool = False


@dataclass(frozen=True, slots=True)
class Padto:
    """An OptOp that pads an axis to the next multiple; the added iterations are masked (R92, Padto)."""

    axis: int
    multiple: int


@dataclass(frozen=True, slots=True)
class Swap:
    """An OptOp that interchanges two axes of the same type."""

    axis: int
    other: int


@dataclass(frozen=True, slots=True)
class Nolocals:
    """An OptOp that forbids workgroup dimensions in the OptOps after it."""


@dataclass(frozen=True, slots=True)
class TC:
    """An OptOp that maps a matrix product to tensor cores (R93, TC; R97, TC argument).

    `axis` is the number of the reduce axis among the REDUCE axes.
    """

    axis: int
    tc: int = -1
    opt: int = 0
    mode: int = 1


OptOp = Split | Padto | Swap | Nolocals | TC


@dataclass(frozen=True, slots=True)
class OptRow:
    """A row of the OptOps table."""

    name: str
    type: type
    axis: str
    arg: str
    semantics: str


# fmt: off
OPT_TABLE: tuple[OptRow, ...] = (
    OptRow("Split",    Split,    "any",        "factor, target, top?", "Splits an axis in two; one part gets the target type."),
    OptRow("Padto",    Padto,    "any",        "multiple",             "Lengthens an axis; what is added does nothing."),
    OptRow("Swap",     Swap,     "axis i",     "axis j",               "Exchanges two axes of the same type."),
    OptRow("Nolocals", Nolocals, "-",          "-",                    "Forbids workgroup dimensions."),
    OptRow("TC",       TC,       "reduce idx", "tc, opt, mode",        "Maps a product of matrices to Wmma; comes first."),
)
# fmt: on


#: Axis types that may also be split into their own type (R91, cache tiling).
TILED = frozenset({AxisType.LOOP, AxisType.GLOBAL, AxisType.REDUCE})


def sort_axes(axes: Sequence[Axis]) -> list[Axis]:
    """Return the axes in the order that numbers them: by priority, then by id (R95, axis number)."""
    return sorted(axes, key=lambda a: (a.type.priority, a.id))


def illegality_reason(
    opt: OptOp,
    axes: Sequence[Axis],
    *,
    applied: Sequence[OptOp] = (),
    descriptors: Sequence[WmmaArg] = (),
    is_matmul: bool = True,
) -> str | None:
    """Return None if `opt` is legal on a kernel with these axes after the OptOps `applied`, else the reason why it is not.

    `descriptors` are the target's tensor cores. `is_matmul` states that the kernel reduces Mul(Cast(a), Cast(b)).
    """
    if isinstance(opt, Split):
        return _check_split(opt, sort_axes(axes), applied)
    if isinstance(opt, Padto):
        if not 0 <= opt.axis < len(axes):
            return f"there is no axis {opt.axis} (R95)"
        return None if opt.multiple >= 1 else f"multiple {opt.multiple} is less than 1 (R98)"
    if isinstance(opt, Swap):
        return _check_swap(opt, sort_axes(axes))
    if isinstance(opt, Nolocals):
        workgroup = sorted(a.type.name for a in axes if a.type in WORKGROUP)
        return f"there is a {workgroup[0]} axis already (R96)" if workgroup else None
    return _check_tensor_core(opt, sort_axes(axes), applied, descriptors, is_matmul)


def _check_split(opt: Split, axes: list[Axis], applied: Sequence[OptOp]) -> str | None:
    if not 0 <= opt.axis < len(axes):
        return f"there is no axis {opt.axis} (R95)"
    if opt.factor < 1:
        return f"factor {opt.factor} is less than 1 (R90)"
    source, row = axes[opt.axis], AXIS_TABLE[opt.target]
    tiling = source.type is opt.target and opt.target in TILED
    if not tiling:
        if not row.split_from:
            return f"no Split makes {opt.target.name} (R90)"
        if source.type not in row.split_from:
            return f"{opt.target.name} is not split from {source.type.name} (R90)"
        if row.direction is Direction.INNER and opt.top:
            return f"{opt.target.name} is the inner half (R90)"
        if row.direction is Direction.OUTER and not opt.top:
            return f"{opt.target.name} is the outer half: it needs top (R90)"
    if opt.target in WORKGROUP and any(isinstance(o, Nolocals) for o in applied):
        return f"Nolocals forbids {opt.target.name} (R96)"
    if not divides(opt.factor, source.extent):
        return f"factor {opt.factor} does not divide the axis for certain (R90)"
    return None


def _check_swap(opt: Swap, axes: list[Axis]) -> str | None:
    missing = next((a for a in (opt.axis, opt.other) if not 0 <= a < len(axes)), None)
    if missing is not None:
        return f"there is no axis {missing} (R95)"
    if opt.axis == opt.other:
        return "the two axes are one (R98)"
    a, b = axes[opt.axis].type, axes[opt.other].type
    return None if a is b else f"{a.name} and {b.name} are of different types (R96)"


def _check_tensor_core(
    opt: TC, axes: list[Axis], applied: Sequence[OptOp], descriptors: Sequence[WmmaArg], is_matmul: bool
) -> str | None:
    if applied:
        return "TC comes first (R93)"
    if opt.opt not in (0, 1, 2) or opt.mode not in (1, 2):
        return f"opt {opt.opt}, mode {opt.mode} are not defined (R97)"
    reduces = [a for a in axes if a.type is AxisType.REDUCE]
    if not 0 <= opt.axis < len(reduces):
        return f"there is no reduce axis {opt.axis} (R97)"
    if not -1 <= opt.tc < len(descriptors):
        return f"the target has no tensor core {opt.tc} (R97)"
    if not is_matmul:
        return "the kernel reduces no Mul(Cast(a), Cast(b)) (R93)"
    if opt.opt == 0 and len(reduces) > 1:
        return f"opt 0 takes one reduce axis, not {len(reduces)} (R97)"
    chosen = descriptors if opt.tc == -1 else descriptors[opt.tc : opt.tc + 1]
    reasons = [_check_tensor_core_dims(d, axes, reduces[opt.axis], opt.opt == 2) for d in chosen]
    if not reasons:
        return "the target has no tensor core (R97)"
    return None if None in reasons else reasons[0]


def _check_tensor_core_dims(descriptor: WmmaArg, axes: list[Axis], reduce_axis: Axis, may_pad: bool) -> str | None:
    """Return None if the descriptor's N, M and K divide two output axes and the reduce axis, else the reason why not.

    With `may_pad` the axes are padded, so that any extents fit.
    """
    n, m, k = descriptor.dims
    outputs = [a for a in axes if a.type in OUTPUT_LOOPS]
    if len(outputs) < 2:
        return f"needs two output axes, got {len(outputs)} (R93)"
    if may_pad:
        return None
    if not divides(k, reduce_axis.extent):
        return f"K = {k} does not divide the reduce axis for certain (R97)"
    fits = any(divides(n, a.extent) and divides(m, b.extent) for a in outputs for b in outputs if a is not b)
    return None if fits else f"N = {n} and M = {m} divide no two output axes for certain (R97)"


def apply_optop(opt: OptOp, axes: Sequence[Axis]) -> list[Axis]:
    """Return the axes after a legal Split, Padto, Swap or Nolocals, in order.

    A Split gives the new sub-axis the next free id (R95, axis number). Raises TypeError for TC, whose axes depend on the target's
    descriptor, and for a Split or Padto of a symbolic extent.
    """
    order = sort_axes(axes)
    if isinstance(opt, Split):
        old = order[opt.axis]
        if isinstance(old.extent, UOp):
            raise TypeError(f"the extent of axis {opt.axis} is symbolic")
        new = Axis(max(a.id for a in order) + 1, opt.target, opt.factor)
        order[opt.axis] = replace(old, extent=old.extent // opt.factor)
        return sort_axes([*order, new])
    if isinstance(opt, Padto):
        old = order[opt.axis]
        if isinstance(old.extent, UOp):
            raise TypeError(f"the extent of axis {opt.axis} is symbolic")
        order[opt.axis] = replace(old, extent=-(-old.extent // opt.multiple) * opt.multiple)
    elif isinstance(opt, Swap):
        a, b = order[opt.axis], order[opt.other]
        order[opt.axis], order[opt.other] = replace(b, id=a.id), replace(a, id=b.id)
    elif isinstance(opt, TC):
        raise TypeError("TC makes its axes from the target's descriptor")
    return sort_axes(order)
