"""OptOps: the scheduling transforms of a kernel's ranges, their table and their legality (R90 to R98).

The axes of a kernel, `Axis(id, type, extent)`, describe its iteration space. They are numbered by the priority of their type, then
by id (R95, axis number). `illegality_reason` checks an OptOp, `apply_legal_optop_to_axes` returns the axes after it.

Each OptOp is one class: its fields, its row of the table, its legality, the axes after it, its text, and how its arguments are
drawn. `OPTOPS` lists the classes. What other layers know of an OptOp is a table by class that `require_every_optop` completes.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import fields, replace
from typing import Any, ClassVar, Self

from uops.spec.choices import ChoiceSource
from uops.spec.errors import Crash
from uops.spec.ir.args import WmmaArg
from uops.spec.ir.axes import AXIS_TABLE, OUTPUT_LOOPS, WORKGROUP, AxisType, Direction
from uops.spec.ir.node import Dim
from uops.spec.ir.record import dataclass
from uops.spec.ir.sizes import divides

#: Axis types that may also be split into their own type (R91, cache tiling).
TILED = frozenset({AxisType.LOOP, AxisType.GLOBAL, AxisType.REDUCE})
#: Factors and multiples that are drawn; a Split also draws the whole axis, for which 0 stands.
_FACTORS = (2, 3, 4, 5, 7, 8, 16)


@dataclass(frozen=True, slots=True)
class Axis:
    """A Range of a kernel: its axis id, its type and its extent (an int or an index expression)."""

    id: int
    type: AxisType
    extent: Dim


@dataclass(frozen=True, slots=True)
class OptRow:
    """A row of the OptOps table.

    `claims` are what it states of legality and of the axes after it, each with its ruling. `printed` states that tinyspec has the
    row; others are extensions.
    """

    axis: str
    arg: str
    semantics: str
    claims: tuple[tuple[str, str], ...] = ()
    printed: bool = True


@dataclass(frozen=True, slots=True)
class OptOpContext:
    """The state of a kernel that decides on legality: its axes in order, the OptOps applied, and the target's tensor cores.

    `is_matmul` states that the kernel reduces Mul(Cast(a), Cast(b)).
    """

    axes: tuple[Axis, ...]
    applied: tuple[OptOp, ...] = ()
    descriptors: tuple[WmmaArg, ...] = ()
    is_matmul: bool = True


@dataclass(frozen=True, slots=True)
class OptOp:
    """A scheduling transform of a kernel's axes.

    The fields of a subclass are numbers, axis types and at most one flag, which comes last. They are its text.
    """

    row: ClassVar[OptRow]
    #: Relative frequency with which campaigns draw the class.
    weight: ClassVar[int]

    def find_illegality(self, context: OptOpContext) -> str | None:
        """Return None if the OptOp is legal, else the reason why it is not, which ends in a ruling."""
        raise NotImplementedError(type(self).__name__)

    def change_axes(self, axes: list[Axis]) -> list[Axis]:
        """Return the axes after the OptOp, in any order, from those before it, in order."""
        raise NotImplementedError(type(self).__name__)

    @classmethod
    def draw_candidate(cls, axes: Sequence[Axis], source: ChoiceSource) -> OptOp | None:
        """Draw an OptOp of this class for some axes, in order, or None. It may be illegal."""
        raise NotImplementedError(cls.__name__)

    def spell(self) -> str:
        """Return the OptOp as text: its name and its arguments, such as `split 0 8 LOOP top`."""
        values = [(f.name, getattr(self, f.name)) for f in fields(self)]
        words = (name if v is True else v.name if isinstance(v, AxisType) else str(v) for name, v in values if v is not False)
        return " ".join((type(self).__name__.lower(), *words))

    @classmethod
    def parse_arguments(cls, words: Sequence[str]) -> Self:
        """Return the OptOp with these arguments. Raises ValueError, LookupError or TypeError."""
        flags = [f.name for f in fields(cls) if f.type == "bool"]
        valued = [f for f in fields(cls) if f.name not in flags]
        given = list(words[len(valued) :])
        if given and given not in [[name] for name in flags]:
            names = ", ".join(f.name for f in fields(cls))
            raise TypeError(f"expected the arguments ({names}) of {cls.__name__}, got {' '.join(words)}")
        values: dict[str, Any] = {f.name: AxisType[w] if f.type == "AxisType" else int(w) for f, w in zip(valued, words)}
        return cls(**values, **{name: given == [name] for name in flags})


@dataclass(frozen=True, slots=True)
class Split(OptOp):
    """An OptOp that splits an axis of extent n into (n / factor, factor), or (factor, n / factor) with `top`.

    The part of extent `factor` gets the type `target`.
    """

    row = OptRow(
        "any",
        "factor, target, top?",
        "Splits an axis in two; one part gets the target type.",
        (
            ("an axis of extent n becomes (n / factor, factor), or (factor, n / factor) with top", "R90"),
            ("factor is at least 1 and divides the extent for certain", "R90"),
            ("the target type is split from the axis' type, and is the half that the table of axis types says", "R90"),
            ("a LOOP, GLOBAL or REDUCE axis may also be split into its own type, at either half", "R91"),
            ("the part of extent factor is a new axis with the next free id", "R95"),
            ("no workgroup dimension is made after a Nolocals", "R96"),
        ),
    )
    weight = 3

    axis: int
    factor: int
    target: AxisType
    top: bool = False

    def find_illegality(self, context: OptOpContext) -> str | None:
        """Return why the table of axis types, a Nolocals or the extent forbids the Split, or None."""
        axes = context.axes
        if not 0 <= self.axis < len(axes):
            return f"there is no axis {self.axis} (R95)"
        if self.factor < 1:
            return f"factor {self.factor} is less than 1 (R90)"
        if (reason := self._find_illegal_axis_types(axes[self.axis].type)) is not None:
            return reason
        if self.target in WORKGROUP and Nolocals() in context.applied:
            return f"Nolocals forbids {self.target.name} (R96)"
        if not divides(self.factor, axes[self.axis].extent):
            return f"factor {self.factor} does not divide the axis for certain (R90)"
        return None

    def _find_illegal_axis_types(self, source: AxisType) -> str | None:
        row = AXIS_TABLE[self.target]
        if source is self.target and source in TILED:
            return None
        if not row.split_from:
            return f"no Split makes {self.target.name} (R90)"
        if source not in row.split_from:
            return f"{self.target.name} is not split from {source.name} (R90)"
        if row.direction is Direction.INNER and self.top:
            return f"{self.target.name} is the inner half (R90)"
        if row.direction is Direction.OUTER and not self.top:
            return f"{self.target.name} is the outer half: it needs top (R90)"
        return None

    def change_axes(self, axes: list[Axis]) -> list[Axis]:
        """Return the axes with the rest of the split one, and a new one with the next free id (R95, axis number)."""
        axis, extent = axes[self.axis], require_constant_extent(axes, self.axis)
        shorter, new = replace(axis, extent=extent // self.factor), Axis(max(a.id for a in axes) + 1, self.target, self.factor)
        return [*axes[: self.axis], shorter, *axes[self.axis + 1 :], new]

    @classmethod
    def draw_candidate(cls, axes: Sequence[Axis], source: ChoiceSource) -> Split | None:
        """Draw a Split whose types and direction the table of axis types admits; the factor may not divide the extent."""
        k = source.integer(0, len(axes) - 1)
        kind, extent = axes[k].type, axes[k].extent
        targets = [t for t in AXIS_TABLE if split_directions(kind, t)]
        if not targets:
            return None
        target = source.choice(targets)
        directions = split_directions(kind, target)
        top = directions[0] if len(directions) == 1 else source.chance(50)
        divisors = [f for f in _FACTORS if isinstance(extent, int) and extent % f == 0]
        factor = source.choice(divisors) if divisors and source.chance(70) else source.choice((*_FACTORS, 0))
        return cls(k, factor or (extent if isinstance(extent, int) else 2), target, top)


def split_directions(source: AxisType, target: AxisType) -> tuple[bool, ...]:
    """Return the values of `top` with which a Split makes axes of type `target` from `source` (R90, R91: tiling)."""
    row = AXIS_TABLE[target]
    if source is target and source in TILED:
        return False, True
    if source not in row.split_from:
        return ()
    return {Direction.INNER: (False,), Direction.OUTER: (True,), Direction.EITHER: (False, True)}[row.direction or Direction.EITHER]


@dataclass(frozen=True, slots=True)
class Padto(OptOp):
    """An OptOp that pads an axis to the next multiple; the added iterations are masked (R92, Padto)."""

    row = OptRow(
        "any",
        "multiple",
        "Lengthens an axis; what is added does nothing.",
        (
            ("the extent becomes the next multiple, and the iterations that are added store nothing", "R92"),
            ("on a Reduce the iterations that are added give its identity", "R92"),
            ("it takes an axis of any type and a multiple of at least 1", "R98"),
            ("the axis is a number of the order by priority, then by id", "R95"),
        ),
    )
    weight = 1

    axis: int
    multiple: int

    def find_illegality(self, context: OptOpContext) -> str | None:
        """Return why the axis or the multiple forbids the Padto, or None."""
        if not 0 <= self.axis < len(context.axes):
            return f"there is no axis {self.axis} (R95)"
        return None if self.multiple >= 1 else f"multiple {self.multiple} is less than 1 (R98)"

    def change_axes(self, axes: list[Axis]) -> list[Axis]:
        """Return the axes with the longer one."""
        extent = -(-require_constant_extent(axes, self.axis) // self.multiple) * self.multiple
        return [*axes[: self.axis], replace(axes[self.axis], extent=extent), *axes[self.axis + 1 :]]

    @classmethod
    def draw_candidate(cls, axes: Sequence[Axis], source: ChoiceSource) -> Padto:
        """Draw an axis and a multiple."""
        return cls(source.integer(0, len(axes) - 1), source.choice(_FACTORS))


@dataclass(frozen=True, slots=True)
class Swap(OptOp):
    """An OptOp that interchanges two axes of the same type."""

    row = OptRow(
        "axis i",
        "axis j",
        "Exchanges two axes of the same type.",
        (
            ("the two axes exchange their places", "R95"),
            ("they are of one type", "R96"),
            ("they are different axes", "R98"),
        ),
    )
    weight = 1

    axis: int
    other: int

    def find_illegality(self, context: OptOpContext) -> str | None:
        """Return why the two axes forbid the Swap, or None."""
        axes = context.axes
        missing = next((a for a in (self.axis, self.other) if not 0 <= a < len(axes)), None)
        if missing is not None:
            return f"there is no axis {missing} (R95)"
        if self.axis == self.other:
            return "the two axes are one (R98)"
        a, b = axes[self.axis].type, axes[self.other].type
        return None if a is b else f"{a.name} and {b.name} are of different types (R96)"

    def change_axes(self, axes: list[Axis]) -> list[Axis]:
        """Return the axes with the ids of the two exchanged."""
        a, b = axes[self.axis], axes[self.other]
        changed = {a.id: replace(a, id=b.id), b.id: replace(b, id=a.id)}
        return [changed.get(x.id, x) for x in axes]

    @classmethod
    def draw_candidate(cls, axes: Sequence[Axis], source: ChoiceSource) -> Swap | None:
        """Draw two axes of one type, or None if the first one drawn is alone."""
        a = source.integer(0, len(axes) - 1)
        others = [k for k, x in enumerate(axes) if k != a and x.type is axes[a].type]
        return cls(a, source.choice(others)) if others else None


@dataclass(frozen=True, slots=True)
class Nolocals(OptOp):
    """An OptOp that forbids workgroup dimensions in the OptOps after it."""

    row = OptRow(
        "-",
        "-",
        "Forbids workgroup dimensions.",
        (
            ("it is rejected once there is a LOCAL, WARP or GROUP_REDUCE axis", "R96"),
            ("no later OptOp makes such an axis", "R96"),
        ),
    )
    weight = 1

    def find_illegality(self, context: OptOpContext) -> str | None:
        """Return why the axes forbid the Nolocals: a workgroup has one already. None if they do not."""
        workgroup = sorted(a.type.name for a in context.axes if a.type in WORKGROUP)
        return f"there is a {workgroup[0]} axis already (R96)" if workgroup else None

    def change_axes(self, axes: list[Axis]) -> list[Axis]:
        """Return the axes as they are."""
        return axes

    @classmethod
    def draw_candidate(cls, axes: Sequence[Axis], source: ChoiceSource) -> Nolocals:
        """Return the only OptOp of the class."""
        return cls()


@dataclass(frozen=True, slots=True)
class TC(OptOp):
    """An OptOp that maps a matrix product to tensor cores (R93, TC; R97, TC argument).

    `axis` is the number of the reduce axis among the REDUCE axes.
    """

    row = OptRow(
        "reduce idx",
        "tc, opt, mode",
        "Maps a product of matrices to Wmma; comes first.",
        (
            ("it is the first OptOp", "R93"),
            ("it takes a Reduce with Add of Mul(Cast(a), Cast(b)) over two output axes", "R93"),
            ("tc is the number of a descriptor of the target, or -1 for the first that fits", "R97"),
            ("opt 0 takes one reduce axis and extents that N, M and K divide, 1 several reduce axes, 2 pads too", "R97"),
            ("mode 1 emits Wmma, mode 2 makes the same axes without it", "R97"),
        ),
    )
    weight = 0

    axis: int
    tc: int = -1
    opt: int = 0
    mode: int = 1

    def find_illegality(self, context: OptOpContext) -> str | None:
        """Return why no tensor core fits the kernel's axes, or None."""
        axes, descriptors = context.axes, context.descriptors
        if context.applied:
            return "TC comes first (R93)"
        if self.opt not in (0, 1, 2) or self.mode not in (1, 2):
            return f"opt {self.opt}, mode {self.mode} are not defined (R97)"
        reduces = [a for a in axes if a.type is AxisType.REDUCE]
        if not 0 <= self.axis < len(reduces):
            return f"there is no reduce axis {self.axis} (R97)"
        if not -1 <= self.tc < len(descriptors):
            return f"the target has no tensor core {self.tc} (R97)"
        if not context.is_matmul:
            return "the kernel reduces no Mul(Cast(a), Cast(b)) (R93)"
        if self.opt == 0 and len(reduces) > 1:
            return f"opt 0 takes one reduce axis, not {len(reduces)} (R97)"
        chosen = descriptors if self.tc == -1 else descriptors[self.tc : self.tc + 1]
        reasons = [_find_tensor_core_misfit(d, axes, reduces[self.axis], self.opt == 2) for d in chosen]
        if not reasons:
            return "the target has no tensor core (R97)"
        return None if None in reasons else reasons[0]

    def change_axes(self, axes: list[Axis]) -> list[Axis]:
        """Raise TypeError: the axes depend on the target's descriptor."""
        raise TypeError("TC makes its axes from the target's descriptor")

    @classmethod
    def draw_candidate(cls, axes: Sequence[Axis], source: ChoiceSource) -> None:
        """Draw nothing: few kernels are products, and it comes first. Schedules of conformance and of searches begin with it."""


def _find_tensor_core_misfit(descriptor: WmmaArg, axes: Sequence[Axis], reduce_axis: Axis, may_pad: bool) -> str | None:
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


#: The OptOps, in the order of the table.
OPTOPS: tuple[type[OptOp], ...] = (Split, Padto, Swap, Nolocals, TC)
_BY_NAME = {o.__name__.lower(): o for o in OPTOPS}


def require_every_optop(table: Collection[type[OptOp]], file: str) -> None:
    """Check that a table by class holds every OptOp. Raises Crash with the file to edit."""
    missing = [o.__name__ for o in OPTOPS if o not in table]
    if missing:
        raise Crash(f"{file}: the table of OptOps lacks {', '.join(missing)}")


def parse_optop(text: str) -> OptOp:
    """Return the OptOp that `spell` wrote. Raises ValueError, LookupError or TypeError."""
    name, *words = text.split()
    return _BY_NAME[name].parse_arguments(words)


def sort_axes(axes: Sequence[Axis]) -> list[Axis]:
    """Return the axes in the order that numbers them: by priority, then by id (R95, axis number)."""
    return sorted(axes, key=lambda a: (a.type.priority, a.id))


def require_constant_extent(axes: Sequence[Axis], k: int) -> int:
    """Return the extent of axis `k`. Raises TypeError if it is symbolic."""
    extent = axes[k].extent
    if not isinstance(extent, int):
        raise TypeError(f"the extent of axis {k} is symbolic")
    return extent


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
    return opt.find_illegality(OptOpContext(tuple(sort_axes(axes)), tuple(applied), tuple(descriptors), is_matmul))


def apply_legal_optop_to_axes(opt: OptOp, axes: Sequence[Axis]) -> list[Axis]:
    """Return the axes after a legal OptOp, in order.

    Raises TypeError for TC, whose axes depend on the target's descriptor, and where a changed extent is symbolic.
    """
    return sort_axes(opt.change_axes(sort_axes(axes)))
