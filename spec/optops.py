"""OptOps: the schedule-level transforms of a kernel's ranges, their table, and the oracle of what is legal (R90 to R98).

A kernel's iteration space is described by its axes, `Axis(id, type, extent)`. They are numbered by the priority of their type, then
by id (R95). `legal` gives None or the reason against an OptOp; `apply` gives the axes after it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from uops.spec.ir.args import WmmaArg
from uops.spec.ir.axes import AXIS_TABLE, AxisType, Direction
from uops.spec.ir.node import Dim, UOp
from uops.spec.ir.record import dataclass
from uops.spec.ir.sizes import divides


@dataclass(frozen=True, slots=True)
class Axis:
    """One Range of a kernel: its axis id, type and extent (an int, or an index expression)."""

    id: int
    type: AxisType
    extent: Dim


@dataclass(frozen=True, slots=True)
class Split:
    """Extent n becomes (n / factor, factor), or (factor, n / factor) with `top`; the part of `factor` gets type `target`."""

    axis: int
    factor: int
    target: AxisType
    top: bool = False


@dataclass(frozen=True, slots=True)
class Padto:
    """The axis grows to the next multiple; the added iterations are masked (R92)."""

    axis: int
    multiple: int


@dataclass(frozen=True, slots=True)
class Swap:
    """Two axes of one type change places."""

    axis: int
    other: int


@dataclass(frozen=True, slots=True)
class Nolocals:
    """No workgroup dimension is made from here on."""


@dataclass(frozen=True, slots=True)
class TC:
    """A tensor core computes the product over reduce axis number `axis`, counted among the REDUCE axes (R93, R97)."""

    axis: int
    tc: int = -1
    opt: int = 0
    mode: int = 1


OptOp = Split | Padto | Swap | Nolocals | TC


@dataclass(frozen=True, slots=True)
class OptRow:
    """One row of the OptOps table."""

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

#: Types that a workgroup has (R96).
WORKGROUP = frozenset({AxisType.LOCAL, AxisType.WARP, AxisType.GROUP_REDUCE})
#: Types that may also be split into themselves, for cache tiling (R91).
TILED = frozenset({AxisType.LOOP, AxisType.GLOBAL, AxisType.REDUCE})
#: Output axes that a tensor core may take.
_OUTPUT = frozenset({AxisType.LOOP, AxisType.GLOBAL})


def ordered(axes: Sequence[Axis]) -> list[Axis]:
    """The axes in the order that numbers them: by priority, then id (R95)."""
    return sorted(axes, key=lambda a: (a.type.priority, a.id))


def legal(
    opt: OptOp,
    axes: Sequence[Axis],
    *,
    done: Sequence[OptOp] = (),
    descriptors: Sequence[WmmaArg] = (),
    product: bool = True,
) -> str | None:
    """None if `opt` may be applied to a kernel of these axes after the OptOps `done`, else the reason against it.

    `descriptors` are the target's tensor cores; `product` says whether the kernel's reduce is over Mul(Cast(a), Cast(b)).
    """
    if isinstance(opt, Split):
        return _split(opt, ordered(axes), done)
    if isinstance(opt, Padto):
        if not 0 <= opt.axis < len(axes):
            return f"there is no axis {opt.axis} (R95)"
        return None if opt.multiple >= 1 else f"multiple {opt.multiple} is less than 1 (R98)"
    if isinstance(opt, Swap):
        return _swap(opt, ordered(axes))
    if isinstance(opt, Nolocals):
        there = sorted(a.type.name for a in axes if a.type in WORKGROUP)
        return f"there is a {there[0]} axis already (R96)" if there else None
    return _tensor_core(opt, ordered(axes), done, descriptors, product)


def _split(opt: Split, axes: list[Axis], done: Sequence[OptOp]) -> str | None:
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
    if opt.target in WORKGROUP and any(isinstance(o, Nolocals) for o in done):
        return f"Nolocals forbids {opt.target.name} (R96)"
    if not divides(opt.factor, source.extent):
        return f"factor {opt.factor} does not divide the axis for certain (R90)"
    return None


def _swap(opt: Swap, axes: list[Axis]) -> str | None:
    missing = next((a for a in (opt.axis, opt.other) if not 0 <= a < len(axes)), None)
    if missing is not None:
        return f"there is no axis {missing} (R95)"
    if opt.axis == opt.other:
        return "the two axes are one (R98)"
    a, b = axes[opt.axis].type, axes[opt.other].type
    return None if a is b else f"{a.name} and {b.name} are of different types (R96)"


def _tensor_core(opt: TC, axes: list[Axis], done: Sequence[OptOp], descriptors: Sequence[WmmaArg], product: bool) -> str | None:
    if done:
        return "TC comes first (R93)"
    if opt.opt not in (0, 1, 2) or opt.mode not in (1, 2):
        return f"opt {opt.opt}, mode {opt.mode} are not defined (R97)"
    reduces = [a for a in axes if a.type is AxisType.REDUCE]
    if not 0 <= opt.axis < len(reduces):
        return f"there is no reduce axis {opt.axis} (R97)"
    if not -1 <= opt.tc < len(descriptors):
        return f"the target has no tensor core {opt.tc} (R97)"
    if not product:
        return "the kernel reduces no Mul(Cast(a), Cast(b)) (R93)"
    if opt.opt == 0 and len(reduces) > 1:
        return f"opt 0 takes one reduce axis, not {len(reduces)} (R97)"
    chosen = descriptors if opt.tc == -1 else descriptors[opt.tc : opt.tc + 1]
    reasons = [_tile(d, axes, reduces[opt.axis], opt.opt == 2) for d in chosen]
    if not reasons:
        return "the target has no tensor core (R97)"
    return None if None in reasons else reasons[0]


def _tile(d: WmmaArg, axes: list[Axis], reduced: Axis, pads: bool) -> str | None:
    """Whether the descriptor's N, M and K fit two output axes and the reduce axis."""
    n, m, k = d.dims
    outputs = [a for a in axes if a.type in _OUTPUT]
    if len(outputs) < 2:
        return f"needs two output axes, got {len(outputs)} (R93)"
    if pads:
        return None
    if not divides(k, reduced.extent):
        return f"K = {k} does not divide the reduce axis for certain (R97)"
    fits = any(divides(n, a.extent) and divides(m, b.extent) for a in outputs for b in outputs if a is not b)
    return None if fits else f"N = {n} and M = {m} divide no two output axes for certain (R97)"


def apply(opt: OptOp, axes: Sequence[Axis]) -> list[Axis]:
    """The axes after a legal Split, Padto, Swap or Nolocals, in order; a new sub-axis gets the next free id (R95).

    Symbolic extents are not divided: `Split` and `Padto` of one raise TypeError.
    """
    order = ordered(axes)
    if isinstance(opt, Split):
        old = order[opt.axis]
        if isinstance(old.extent, UOp):
            raise TypeError(f"the extent of axis {opt.axis} is symbolic")
        new = Axis(max(a.id for a in order) + 1, opt.target, opt.factor)
        order[opt.axis] = replace(old, extent=old.extent // opt.factor)
        return ordered([*order, new])
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
    return ordered(order)
