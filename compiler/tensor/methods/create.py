"""Creation: constants, sequences and random numbers.

Random numbers are counter-based (R22: Threefry). A generator is (seed, position); a call takes as many counters as it needs and
advances the position, so equal seeds give equal sequences. Seed and position are data, not constants, so all calls of one shape
have one graph.
"""

from __future__ import annotations

import math
import threading
from typing import Any, Self

import numpy as np

from uops.compiler.tensor import storage
from uops.compiler.tensor.dtypes import DTypeLike, Number, as_dtype, default_dtype, pick_first_integer_dtype_holding
from uops.compiler.tensor.faults import fault, format_for_error, require_integer_of_at_most_64_bits
from uops.compiler.tensor.methods.indexing import IndexingMethods, position_dtype
from uops.compiler.tensor.methods.movement import unpack_integers, unpack_shape
from uops.compiler.tensor.numbers import require_in_range_if_integer_dtype, require_python_number
from uops.spec.errors import SpecTypeError
from uops.spec.ir import build as B
from uops.spec.ir import dtypes as dt
from uops.spec.ir.dtypes import DType
from uops.spec.ir.ops import Op
from uops.spec.rows.compositions import arange


class _RandomCounterState(threading.local):
    """The random state of one thread: the seed, and the number of counters used."""

    seed = 0
    position = 0

    def take_seed_and_first_counter(self, counters_to_take: int) -> storage.Array:
        """Return (key, first counter), and advance the position."""
        state = np.array([self.seed, self.position], np.uint64)
        self.position = (self.position + counters_to_take) % 2**64
        return state


_generator = _RandomCounterState()


def _count_finite_arange_values(first: Number, exclusive_end: Number, step: Number) -> int:
    """Return the number of values of `arange`. Raises SpecValueError if it is not finite."""
    if all(isinstance(v, int) for v in (first, exclusive_end, step)):
        return max(0, int(-((first - exclusive_end) // step)))
    try:
        count = math.ceil((exclusive_end - first) / step)
        finite = all(map(math.isfinite, (first, exclusive_end, step)))
    except (OverflowError, ValueError):
        finite = False
    if not finite:
        raise fault(
            "arange",
            None,
            f"expected finite ends and steps, got {format_for_error(first)} to {format_for_error(exclusive_end)}"
            f" by {format_for_error(step)}",
        )
    return max(0, count)


def _convert_to_float_or_fault(value: Number) -> float:
    """Return a number as a float. Raises SpecValueError if it overflows."""
    try:
        return float(value)
    except OverflowError as e:
        raise fault("", None, f"expected a number that a float can hold, got {format_for_error(value)}") from e


class CreationMethods(IndexingMethods):
    """Class methods that create Tensors."""

    __slots__ = ()

    @classmethod
    def full(cls, shape: int | tuple[int, ...], value: Number, dtype: DTypeLike | None = None) -> Self:
        """Return a lazy constant without memory: `value` everywhere."""
        dims, value = unpack_shape("full", (shape,)), require_python_number(value)
        d = default_dtype(value) if dtype is None else as_dtype(dtype)
        return cls.of(B.const(require_in_range_if_integer_dtype(value, d), d))._broadcast("full", "EXPAND.C2", dims)

    @classmethod
    def zeros(cls, *shape: Any, dtype: DTypeLike = dt.float32) -> Self:
        """Return zeros."""
        return cls.full(unpack_integers(shape), 0, dtype)

    @classmethod
    def ones(cls, *shape: Any, dtype: DTypeLike = dt.float32) -> Self:
        """Return ones."""
        return cls.full(unpack_integers(shape), 1, dtype)

    @classmethod
    def arange(cls, start: Number, stop: Number | None = None, step: Number = 1, dtype: DTypeLike | None = None) -> Self:
        """Return start + step * [0, 1, ...], below `stop` (above it for a negative step). Spec: arange.

        Without a dtype the values are float32 if one of the three is a float. Else they have the first of int32, int64 and uint64
        that holds them all. Of an integer dtype beside floats, the first two values lose their fractions, as in NumPy. They
        determine the step.
        """
        first, end, step = map(require_python_number, (0, start, step) if stop is None else (start, stop, step))
        if step == 0:
            raise fault("arange", None, "expected a step other than 0, got 0")
        n, wanted = _count_finite_arange_values(first, end, step), None if dtype is None else as_dtype(dtype)
        if wanted is dt.bool_ and n > 2:
            raise fault("arange", None, f"expected at most 2 values of bool, got {n}", SpecTypeError)
        d = wanted or (dt.float32 if any(isinstance(v, float) for v in (first, end, step)) else None)
        if d is None or not d.is_float:
            whole_step = math.trunc(first + step) - math.trunc(first) if n > 1 else 1  # beyond a single value may lie infinity
            return cls._integer_arange(math.trunc(first), whole_step, n, wanted)
        whole_span = step * max(n - 1, 1)
        inner = d.wide if max(abs(first), abs(whole_span)) <= d.wide.max_finite else dt.float64  # no infinity before the last cast
        return (cls._positions(n).cast(inner) * _convert_to_float_or_fault(step) + _convert_to_float_or_fault(first)).cast(d)

    @classmethod
    def _positions(cls, n: int) -> Self:
        """Return [0, 1, ..., n - 1]."""
        return cls.of(arange(require_integer_of_at_most_64_bits(n), position_dtype(n)))

    @classmethod
    def _integer_arange(cls, first: int, step: int, count: int, wanted_dtype: DType | None) -> Self:
        """Return `count` integers from `first` on, computed in 32 bits at least.

        Raises SpecValueError if the dtype does not hold them.
        """
        ends = (first, first + step * (count - 1)) if count else (0,)
        if wanted_dtype is not None:
            for v in ends:
                require_in_range_if_integer_dtype(v, wanted_dtype)
        inner = pick_first_integer_dtype_holding(
            *ends, dtypes_to_try_first=(wanted_dtype,) if wanted_dtype and wanted_dtype.bits >= 32 else ()
        )
        steps = cls.of(arange(require_integer_of_at_most_64_bits(count), inner))
        if step != 1 or first:
            steps = steps * B.wrap_to_width(step, inner) + B.wrap_to_width(first, inner)  # the sums fit, so that products may wrap
        return steps.cast(wanted_dtype or inner)

    @classmethod
    def linspace(cls, start: Number, stop: Number, steps: int, dtype: DTypeLike = dt.float32) -> Self:
        """Return `steps` values from `start` to `stop`, both included, computed in float64; integers are the floor."""
        first, last, n, d = (
            _convert_to_float_or_fault(require_python_number(start)),
            _convert_to_float_or_fault(require_python_number(stop)),
            require_integer_of_at_most_64_bits(steps),
            as_dtype(dtype),
        )
        if n < 0:
            raise fault("linspace", None, f"expected a number of steps of at least 0, got {n}")
        if d is dt.bool_:
            raise fault("linspace", None, "expected a numeric dtype, got bool", SpecTypeError)
        ends = (require_python_number(start), require_python_number(stop))[: min(n, 2)]
        if d.is_integer and not all(d.min <= v < d.max + 1 for v in ends):
            raise fault("linspace", None, f"expected values in the range of {d}, got {first} to {last}")
        position = cls._positions(n)
        values = position.cast(dt.float64) * ((last - first) / _convert_to_float_or_fault(n - 1) if n > 1 else 0.0) + first
        if n > 1:
            values = position.eq(n - 1).where(last, values)
        return (values.floor() if d.is_integer else values).cast(d)

    @classmethod
    def eye(cls, n: int, m: int | None = None, dtype: DTypeLike = dt.float32) -> Self:
        """Return (n, m) with ones on the diagonal.

        It is a column of ones, padded to rows of m + 1 elements and read in rows of m.
        """
        n, columns = unpack_shape("eye", (n, n if m is None else m))
        k = min(n, columns)
        if k == 0:
            return cls.zeros(n, columns, dtype=dtype)
        t = cls.ones(k, 1, dtype=dtype).pad([(0, 0), (0, columns)]).flatten()
        return t._crop_or_pad_axis_at_end(0, n * columns).reshape(n, columns)

    # Random numbers

    @staticmethod
    def manual_seed(seed: int = 0) -> None:
        """Restart this thread's sequence of random numbers."""
        _generator.seed, _generator.position = require_integer_of_at_most_64_bits(seed) % 2**64, 0

    @classmethod
    def _draw_random_words(cls, count: int, word_dtype: DType) -> Self:
        """Return `count` random words: Threefry of successive counters under the seed, low word first."""
        per = 8 // word_dtype.itemsize
        counters = -(-count // per)
        state = cls.of(storage.make_leaf_on_contiguous_memory_or_copy(_generator.take_seed_and_first_counter(counters)))
        steps = cls.of(arange(counters)).cast(dt.uint64)
        words = cls.of(B.build_alu_with_promotion(Op.THREEFRY, (steps + state[1]).uop, state[0].uop))
        return words.bitcast(word_dtype)._crop_or_pad_axis_at_end(0, count)

    @classmethod
    def rand(cls, *shape: Any, dtype: DTypeLike = dt.float32) -> Self:
        """Return uniform floats in [0, 1): the top bits of a random word, as many as the significand has, over their range."""
        d, dims = as_dtype(dtype), unpack_shape("rand", shape)
        if not d.is_float:
            raise fault("rand", None, f"expected a float dtype, got {d}", SpecTypeError)
        word, bits = d.wide.word, d.man_bits + 1
        whole = cls._draw_random_words(math.prod(dims), word) >> (word.bits - bits)
        return (whole.cast(d.wide) * 2.0**-bits).cast(d).reshape(dims)

    @classmethod
    def uniform(cls, *shape: Any, low: float = 0.0, high: float = 1.0, dtype: DTypeLike = dt.float32) -> Self:
        """Return low + (high - low) * rand."""
        low, high = _convert_to_float_or_fault(require_python_number(low)), _convert_to_float_or_fault(require_python_number(high))
        return cls.rand(*shape, dtype=dtype) * (high - low) + low

    @classmethod
    def randn(cls, *shape: Any, dtype: DTypeLike = dt.float32) -> Self:
        """Return standard normal floats: sqrt(-2 log(1 - u)) * cos(2 pi v) of two uniform ones (Box and Muller 1958)."""
        d = as_dtype(dtype)
        wide = d if d.bits >= 32 else dt.float32
        u, v = cls.rand(*shape, dtype=wide), cls.rand(*shape, dtype=wide)
        return (((1 - u).log() * -2).sqrt() * (v * (2 * math.pi)).cos()).cast(d)

    normal = randn

    @classmethod
    def randint(cls, *shape: Any, low: int = 0, high: int = 10, dtype: DTypeLike = dt.int32) -> Self:
        """Return integers in [low, high), with high - low at most 2^32.

        Each is the high word of the product of a random word and high - low.
        """
        low, high = require_integer_of_at_most_64_bits(low), require_integer_of_at_most_64_bits(high)
        dims, width, d = unpack_shape("randint", shape), high - low, as_dtype(dtype)
        if not 0 < width <= 2**32:
            raise fault("randint", None, f"expected low < high and high - low <= 2**32, got low {low} and high {high}")
        require_in_range_if_integer_dtype(low, d), require_in_range_if_integer_dtype(high - 1, d)
        word = cls._draw_random_words(math.prod(dims), dt.uint32).cast(dt.uint64)
        return ((word * width >> 32).cast(dt.int64) + low).cast(d).reshape(dims)
