"""Creation: constants, sequences and random numbers.

Random numbers are counter-based (R22): a generator is (seed, position); a call takes as many counters as it needs and moves the
position on, so equal seeds give equal sequences. Seed and position are data, not constants, and every call of one shape has one
graph.
"""

from __future__ import annotations

import math
import threading
from typing import Any, Self

import numpy as np

from uops.compiler.tensor import storage
from uops.compiler.tensor.dtypes import DTypeLike, Number, as_dtype, default_dtype, pick_integer
from uops.compiler.tensor.faults import fault, spell, whole
from uops.compiler.tensor.methods.indexing import Indexing, position_dtype
from uops.compiler.tensor.methods.movement import extents, flat
from uops.compiler.tensor.numbers import check_fit, number
from uops.spec.errors import SpecTypeError
from uops.spec.ir import build as B
from uops.spec.ir import dtypes as dt
from uops.spec.ir.dtypes import DType
from uops.spec.ir.ops import Op
from uops.spec.rows.compositions import arange


class _Generator(threading.local):
    """The state of one thread: seed, and the counters used."""

    seed = 0
    position = 0

    def take(self, counters: int) -> storage.Array:
        """(key, first counter), and the position moved on."""
        found = np.array([self.seed, self.position], np.uint64)
        self.position = (self.position + counters) % 2**64
        return found


_generator = _Generator()


def _count(first: Number, end: Number, step: Number) -> int:
    """How many values `arange` has."""
    if all(isinstance(v, int) for v in (first, end, step)):
        return max(0, int(-((first - end) // step)))
    try:
        found = math.ceil((end - first) / step)
        finite = all(map(math.isfinite, (first, end, step)))
    except (OverflowError, ValueError):
        finite = False
    if not finite:
        raise fault("arange", None, f"no finite sequence from {spell(first)} to {spell(end)} by {spell(step)}")
    return max(0, found)


def _as_float(value: Number) -> float:
    try:
        return float(value)
    except OverflowError as e:
        raise fault("", None, f"{spell(value)} is no finite float") from e


class Creation(Indexing):
    """Class methods that make Tensors."""

    __slots__ = ()

    @classmethod
    def full(cls, shape: int | tuple[int, ...], value: Number, dtype: DTypeLike | None = None) -> Self:
        """`value` everywhere; a lazy constant, without memory."""
        dims, value = extents("full", (shape,)), number(value)
        d = default_dtype(value) if dtype is None else as_dtype(dtype)
        return cls.of(B.const(check_fit(value, d), d))._broadcast("full", "EXPAND.C2", dims)

    @classmethod
    def zeros(cls, *shape: Any, dtype: DTypeLike = dt.float32) -> Self:
        return cls.full(flat(shape), 0, dtype)

    @classmethod
    def ones(cls, *shape: Any, dtype: DTypeLike = dt.float32) -> Self:
        return cls.full(flat(shape), 1, dtype)

    @classmethod
    def arange(cls, start: Number, stop: Number | None = None, step: Number = 1, dtype: DTypeLike | None = None) -> Self:
        """start + step * [0, 1, ...], below `stop` (above it for a negative step). Spec: arange.

        Without a dtype they are float32 if one of the three is a float, else of the first of int32, int64 and uint64 that holds
        all. Beside floats the first and the second value of an integer dtype lose their fractions, as in NumPy, and say the step.
        """
        first, end, step = map(number, (0, start, step) if stop is None else (start, stop, step))
        if step == 0:
            raise fault("arange", None, "a step of 0")
        n, asked = _count(first, end, step), None if dtype is None else as_dtype(dtype)
        if asked is dt.bool_ and n > 2:
            raise fault("arange", None, f"{n} values of bool; it has two", SpecTypeError)
        found = asked or (dt.float32 if any(isinstance(v, float) for v in (first, end, step)) else None)
        if found is None or not found.is_float:
            return cls._whole_steps(math.trunc(first), math.trunc(first + step) - math.trunc(first), n, asked)
        wide = dt.float64 if found is dt.float64 else dt.float32
        return (cls._positions(n).cast(wide) * _as_float(step) + _as_float(first)).cast(found)

    @classmethod
    def _positions(cls, n: int) -> Self:
        """[0, 1, ..., n - 1]."""
        return cls.of(arange(whole(n), position_dtype(n)))

    @classmethod
    def _whole_steps(cls, first: int, step: int, n: int, asked: DType | None) -> Self:
        """n values in the dtype asked for, which holds all of them, computed in 32 bits at least."""
        ends = (first, first + step * (n - 1)) if n else (0,)
        if asked is not None:
            for v in ends:
                check_fit(v, asked)
        inner = pick_integer(*ends, first=(asked,) if asked and asked.bits >= 32 else ())
        steps = cls.of(arange(whole(n), inner))
        if step != 1 or first:
            steps = steps * B.wrap(step, inner) + B.wrap(first, inner)  # the sums fit, so that products may wrap
        return steps.cast(asked or inner)

    @classmethod
    def linspace(cls, start: Number, stop: Number, steps: int, dtype: DTypeLike = dt.float32) -> Self:
        """`steps` values from `start` to `stop`, both included, computed in float64; integers are the floor."""
        first, last, n, found = _as_float(number(start)), _as_float(number(stop)), whole(steps), as_dtype(dtype)
        if n < 0:
            raise fault("linspace", None, f"{n} steps")
        if found is dt.bool_:
            raise fault("linspace", None, "bool has no values between two", SpecTypeError)
        ends = (number(start), number(stop))[: min(n, 2)]
        if found.is_integer and not all(found.min <= v < found.max + 1 for v in ends):
            raise fault("linspace", None, f"values from {first} to {last} are not all in the range of {found}")
        position = cls._positions(n)
        values = position.cast(dt.float64) * ((last - first) / _as_float(n - 1) if n > 1 else 0.0) + first
        if n > 1:
            values = position.eq(n - 1).where(last, values)
        return (values.floor() if found.is_integer else values).cast(found)

    @classmethod
    def eye(cls, n: int, m: int | None = None, dtype: DTypeLike = dt.float32) -> Self:
        """Ones on the diagonal of (n, m): a column of ones, padded to rows of m + 1 elements and read in rows of m."""
        n, columns = extents("eye", (n, n if m is None else m))
        k = min(n, columns)
        if k == 0:
            return cls.zeros(n, columns, dtype=dtype)
        t = cls.ones(k, 1, dtype=dtype).pad([(0, 0), (0, columns)]).flatten()
        return t._to_length(0, n * columns).reshape(n, columns)

    # Random numbers

    @staticmethod
    def manual_seed(seed: int = 0) -> None:
        """Begin this thread's sequence of random numbers anew."""
        _generator.seed, _generator.position = whole(seed) % 2**64, 0

    @classmethod
    def _bits(cls, count: int, dtype: DType) -> Self:
        """`count` random words: Threefry of successive counters under the seed, low word first."""
        per = 8 // dtype.itemsize
        counters = -(-count // per)
        state = cls.of(storage.leaf(_generator.take(counters)))
        steps = cls.of(arange(counters)).cast(dt.uint64)
        words = cls.of(B.alu(Op.THREEFRY, (steps + state[1]).uop, state[0].uop))
        return words.bitcast(dtype)._to_length(0, count)

    @classmethod
    def rand(cls, *shape: Any, dtype: DTypeLike = dt.float32) -> Self:
        """Uniform in [0, 1): the top bits of a random word, as many as the significand has, over their range."""
        found, dims = as_dtype(dtype), extents("rand", shape)
        if not found.is_float:
            raise fault("rand", None, f"dtype {found} is no float", SpecTypeError)
        word = dt.uint64 if found is dt.float64 else dt.uint32
        kept = found.man_bits + 1
        wide = dt.float64 if found is dt.float64 else dt.float32
        whole = cls._bits(math.prod(dims), word) >> (word.bits - kept)
        return (whole.cast(wide) * 2.0**-kept).cast(found).reshape(dims)

    @classmethod
    def uniform(cls, *shape: Any, low: float = 0.0, high: float = 1.0, dtype: DTypeLike = dt.float32) -> Self:
        """low + (high - low) * rand."""
        low, high = _as_float(number(low)), _as_float(number(high))
        return cls.rand(*shape, dtype=dtype) * (high - low) + low

    @classmethod
    def randn(cls, *shape: Any, dtype: DTypeLike = dt.float32) -> Self:
        """Standard normal: sqrt(-2 log(1 - u)) * cos(2 pi v) of two uniform numbers (Box and Muller 1958)."""
        found = as_dtype(dtype)
        wide = found if found.bits >= 32 else dt.float32
        u, v = cls.rand(*shape, dtype=wide), cls.rand(*shape, dtype=wide)
        return (((1 - u).log() * -2).sqrt() * (v * (2 * math.pi)).cos()).cast(found)

    normal = randn

    @classmethod
    def randint(cls, *shape: Any, low: int = 0, high: int = 10, dtype: DTypeLike = dt.int32) -> Self:
        """Whole numbers in [low, high), high - low at most 2^32: the high word of a random word times high - low."""
        low, high = whole(low), whole(high)
        dims, width, found = extents("randint", shape), high - low, as_dtype(dtype)
        if not 0 < width <= 2**32:
            raise fault("randint", None, f"low {low} and high {high}")
        check_fit(low, found), check_fit(high - 1, found)
        word = cls._bits(math.prod(dims), dt.uint32).cast(dt.uint64)
        return ((word * width >> 32).cast(dt.int64) + low).cast(found).reshape(dims)
