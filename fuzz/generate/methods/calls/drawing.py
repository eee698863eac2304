"""Calls of methods, and the choice of their arguments."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from uops.backends.arrays import STORAGE
from uops.backends.testing.values import draw_array
from uops.fuzz.generate.methods.calls.answers import Answer, Array, cast_array, dtype_of
from uops.spec.choices import ChoiceSource
from uops.spec.ir import dtypes as dt
from uops.spec.ir.dtypes import DType, promote

Shape = tuple[int, ...]

#: Extents of axes; small ones are more frequent.
EXTENTS = (1, 2, 3, 4, 5, 2, 3, 0, 7, 8, 9, 16, 17, 31, 33)
#: Maximum numbers of elements of an ordinary array, and element counts of a large one, beyond the positions of int16.
ELEMENTS, LARGE = 300, (32_769, 40_000, 65_537, 70_000)
#: Percentage of calls with wrong arguments, and of large arrays where a method is linear in its elements.
WRONG, LARGE_PERCENT = 10, 4
#: Floats of fewer than 32 bits.
NARROW = tuple(d for d in dt.FLOATS if d.bits < dt.float32.bits)
#: Styles of data, ordinary ones more often.
STYLES = ("small", "small", "normal", "normal", "mixed", "special", "spread", "edge", "bits")
#: Python numbers as operands.
NUMBERS = (2, 1, 0, 3, -1, 0.5, 7, -0.0, 1.1, 100, 300, True, math.inf, math.nan)


#: How the first Tensor of a call is made: from data, or as a view of other data with the same elements.
FORMS = ("plain", "plain", "plain", "plain", "transposed", "flipped", "sliced", "stepped")


class MethodCall(NamedTuple):
    """A call of a Tensor method. Arrays among its arguments stand for Tensors.

    `answer` has one entry per Tensor that the call gives, or is the class of the error that it must raise. Some errors are raised
    when the value is realized. `seed` is that of the random numbers, with the number of float32 values drawn before. `form` is one
    of `FORMS`: how the first Tensor is made. With `gives_arrays`, the other operands are given as NumPy arrays, not as Tensors.
    """

    method: str
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    answer: tuple[Answer, ...] | type[Exception]
    is_raised_on_realization: bool = False
    seed: tuple[int, int] | None = None
    form: str = "plain"
    gives_arrays: bool = False

    def __str__(self) -> str:
        """Return the call as a user reads it: `Tensor.gather(dim=1, index=int32 (3, 2)) of float32 (3, 5)`."""
        given = [*map(format_argument, self.args), *(f"{k}={format_argument(v)}" for k, v in self.kwargs.items())]
        if self.args and isinstance(self.args[0], np.ndarray) and not self.method.startswith("Tensor"):
            form = "" if self.form == "plain" else f"{self.form} "
            return f"Tensor.{self.method}({', '.join(given[1:])}) of {form}{given[0]}"
        return f"Tensor.{self.method}({', '.join(given)})"


def format_argument(value: Any) -> str:
    """Return an argument as text; an array by its dtype and shape."""
    if isinstance(value, np.ndarray):
        return f"{dtype_of(value)} {value.shape}"
    if isinstance(value, (tuple, list)):
        inner = ", ".join(map(format_argument, value))
        return f"[{inner}]" if isinstance(value, list) else f"({inner}{',' * (len(value) == 1)})"
    if isinstance(value, slice):
        return ":".join("" if v is None else str(v) for v in (value.start, value.stop, value.step))
    return repr(value)


def call(method: str, *args: Any, answer: Answer | list[Answer] | type[Exception], **kwargs: Any) -> MethodCall:
    """Return a call with one answer, several, or an error."""
    answers = (answer,) if not isinstance(answer, (list, type)) else answer if isinstance(answer, type) else tuple(answer)
    return MethodCall(method, args, kwargs, answers)


class CallDraw:
    """The choices of one call."""

    def __init__(self, source: ChoiceSource) -> None:
        self.source = source
        self.integer, self.chance, self.choice = source.integer, source.chance, source.choice

    def is_wrong(self) -> bool:
        """Return True if the call must have a wrong argument."""
        return self.chance(WRONG)

    def summed_dtype(self) -> DType:
        """Draw the dtype of elements that are added up, narrow floats more often: their sums are wider."""
        return self.choice(NARROW) if self.chance(35) else self.dtype()

    def dtype(self, dtypes: tuple[DType, ...] = dt.STORABLE) -> DType:
        """Draw a dtype; 40 % of the draws are of float32 or int32 if they are among them."""
        usual = tuple(d for d in (dt.float32, dt.int32) if d in dtypes)
        return self.choice(usual) if usual and self.chance(40) else self.choice(dtypes)

    def extent(self, most: int = 33, least: int = 0) -> int:
        """Draw an extent."""
        return self.choice([n for n in EXTENTS if least <= n <= most] or [least])

    def shape(self, least_rank: int = 0, most_rank: int = 4, least: int = 0, elements: int = ELEMENTS, large: int = 0) -> Shape:
        """Draw a shape; `large` is the percentage of shapes of more than 32,768 elements."""
        rank = self.integer(least_rank, most_rank)
        if large and rank and self.chance(large):
            count = self.choice(LARGE)
            first = self.choice((1, 2, 3, 5, 16)) if rank > 1 else 1
            dims = [1] * (rank - 2) + ([first] if rank > 1 else []) + [-(-count // first)]
            return tuple(dims[::-1] if self.chance(30) else dims)
        dims = []
        for _ in range(rank):
            dims.insert(self.integer(0, len(dims)), self.extent(max(least, elements // max(1, math.prod(dims) or 1)), least))
        return tuple(dims)

    def array(self, d: DType, shape: Shape, styles: tuple[str, ...] = STYLES) -> Array:
        """Draw an array."""
        return draw_array(self.source, d, shape, self.choice(styles))

    def tame(self, d: DType, shape: Shape) -> Array:
        """Draw an array of moderate numbers, now and then with any values."""
        return self.array(d, shape, ("small", "normal", "small", "normal", "mixed") if self.chance(85) else STYLES)

    def axis(self, rank: int) -> int:
        """Draw an axis, often a negative one."""
        return self.integer(-rank, rank - 1)

    def wrong_axis(self, rank: int) -> int:
        """Draw an axis that is out of range."""
        return self.choice((rank, -rank - 1, rank + 3)) if rank else self.choice((1, -2, 5))

    def axes(self, rank: int) -> Any:
        """Draw an axis argument of a reduction: None, a number, or a tuple."""
        form = self.choice(("one", "one", "some", "all"))
        if form == "all" or not rank:
            return None
        if form == "one":
            return self.axis(rank)
        chosen = [k for k in range(rank) if self.chance(50)]
        return tuple(k - rank if self.chance(30) else k for k in chosen)

    def number(self, d: DType, numbers: tuple[Any, ...] = NUMBERS) -> Any:
        """Draw a Python number."""
        return self.choice(numbers)

    def broadcastable(self, shape: Shape) -> Shape:
        """Draw a shape that broadcasts with another one, to it or beyond it."""
        first = self.integer(0, len(shape)) if self.chance(25) else 0
        out = tuple(1 if self.chance(20) else n for n in shape[first:])
        if len(out) < 4 and math.prod(shape) <= ELEMENTS and self.chance(10):
            out = (self.integer(1, 3), *((1,) * (len(shape) - len(out))), *out)
        return out

    def clashing(self, shape: Shape) -> Shape | None:
        """Return a shape that does not broadcast with another one, or None if there is none."""
        fixed = [k for k, n in enumerate(shape) if n != 1]
        if not fixed:
            return None
        k = self.choice(fixed)
        return tuple(n + 2 if j == k else n for j, n in enumerate(shape))


def axes_of(axis: Any, rank: int) -> tuple[int, ...]:
    """Return the axes that an argument names, counted from the front."""
    if axis is None:
        return tuple(range(rank))
    return tuple(sorted(a % rank for a in (axis if isinstance(axis, (tuple, list)) else (axis,))))


def default_number_dtype(value: Any) -> DType:
    """Return the dtype of a Python number alone: bool, the first integer dtype from int32 on that holds it, or float32."""
    if isinstance(value, bool):
        return dt.bool_
    if isinstance(value, float):
        return dt.float32
    return next(d for d in (dt.int32, dt.int64, dt.uint64) if d.min <= value <= d.max)


def weak_number(value: Any, like: DType) -> Array:
    """Return a Python number beside a Tensor: in the Tensor's dtype if that has its kind and, of integers, its value."""
    if isinstance(value, bool):
        holds = True
    elif isinstance(value, float):
        holds = like.is_float
    else:
        holds = like.is_float or (like.is_integer and like.min <= value <= like.max)
    return number_array(value, like if holds else default_number_dtype(value))


def number_array(value: Any, d: DType) -> Array:
    """Return a Python number as an array of shape (), rounded once."""
    if isinstance(value, float):
        return cast_array(np.array(value, np.float64), d)
    if d.is_float:
        return cast_array(np.array(value, np.int64), d) if d is not dt.float64 else np.array(float(value))
    return np.array(value).astype(STORAGE[d])


def promote_all(*arrays: Array) -> list[Array]:
    """Return arrays cast to the dtype that their dtypes promote to (R25)."""
    common = dtype_of(arrays[0])
    for a in arrays[1:]:
        common = promote(common, dtype_of(a))
    return [cast_array(a, common) for a in arrays]


def to_float_dtype(d: DType) -> DType:
    """Return the dtype of quotients and elementary functions: this one if it is a float, else float32."""
    return d if d.is_float else dt.float32


class MethodRow(NamedTuple):
    """A row of the table: how the calls of a method are drawn, and whether it takes NumPy arrays as operands."""

    method: str
    draw: Callable[[CallDraw], MethodCall]
    weight: int = 1
    takes_arrays: bool = False
