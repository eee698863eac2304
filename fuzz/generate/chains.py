"""Chains of Tensor methods, as users write them.

Takes: choices. Gives: the graph and the inputs that `capture` makes of the Tensor after two to five steps, with an earlier one now
and then. Each step is a method of the front end on the Tensor before it, with arguments that fit, often beside a reduction of
itself, an earlier Tensor or new data. What reductions, movement and choices make of each other is what the schedules of kernels
meet, on extents around whole vectors, tails and tiles.

No value, nor the windows that products are made of, has more than about `most` elements. Never generated: a position out of
bounds, and one that is computed from floats (R30, R45).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from uops.backends.testing.values import Draw, array
from uops.compiler.tensor import Tensor, capture
from uops.fuzz.generate.declared import Declared
from uops.fuzz.generate.graphs import Case
from uops.spec.ir import dtypes as dt
from uops.spec.ir.dtypes import DType
from uops.spec.ir.node import toposort

Shape = tuple[int, ...]

EXTENTS = (1, 2, 3, 7, 8, 16, 17, 31, 33, 64, 65, 130, 200, 300)
#: Elements of one value at most; small ones more often.
ELEMENTS = (200, 600, 2000, 2000, 6000, 6000, 20000, 90000)
#: From so many on, data has no short axis: what needs whole tiles of several axes needs all of them.
LARGE, LONG = 20000, 16
#: Extents that are counted, of which there are windows: `arange` and prefix sums are n rows of n.
COUNTED = 200
#: Elements of all windows of a prefix sum.
WINDOWS = 40_000
#: Half of the values are of the dtypes that users take when they say nothing.
DTYPES = (*dt.STORABLE, *(dt.float32, dt.int32) * 6)
#: Small numbers, so that sums of integers do not wrap; others now and then.
STYLES = ("small",) * 7 + ("normal", "normal", "mixed", "special")
NUMBERS = (2, 1, 0, 3, -1, 0.5, 7)

REDUCTIONS = ("sum", "max", "min", "sum", "max", "mean", "prod", "any", "all", "var", "logsumexp")
POSITIONS = ("argmax", "argmin")
ROWS = ("softmax", "log_softmax", "layernorm")
UNARY = ("neg", "abs", "sign", "square", "relu", "exp", "sqrt", "sigmoid", "floor", "reciprocal", "log", "isnan", "sin")
ARITHMETIC = ("add", "mul", "sub", "maximum", "minimum", "idiv", "mod", "div")
COMPARISONS = ("__lt__", "__gt__", "__le__", "eq", "ne")
#: Of bools and of integers.
BITS = ("__and__", "__or__", "__xor__")


@dataclass
class Chain:
    """A chain in the making; `made` are its Tensors so far."""

    draw: Draw
    most: int
    dtypes: tuple[DType, ...] = DTYPES
    made: list[Tensor] = field(default_factory=list)

    def room(self, t: Tensor) -> int:
        """How often the elements of a Tensor may be repeated."""
        return max(1, self.most // max(1, t.numel()))

    def extent(self, most: int, least: int = 1) -> int:
        return self.draw.choice([n for n in EXTENTS if least <= n <= most] or [1])

    def shape(self) -> Shape:
        """A shape of rank 1 to 4, no axis before the others to be large."""
        dims: list[int] = []
        for _ in range(self.draw.choice((1, 2, 2, 3, 3, 3, 4))):
            n = self.extent(self.most // math.prod(dims), LONG if self.most >= LARGE else 1)
            dims.insert(self.draw.integer(0, len(dims)), n)
        return tuple(dims)

    def data(self, d: DType, shape: Shape) -> Tensor:
        return Tensor.from_numpy(array(self.draw, d, shape, self.draw.choice(STYLES)))

    def positions(self, n: int, shape: Shape) -> Tensor:
        """Positions on an axis of n, sometimes some from its end."""
        d = self.draw.choice((dt.int32, dt.int32, dt.int64))
        found = np.mod(array(self.draw, d, shape, "bits"), n)
        return Tensor.from_numpy(found - n * (found % 2) if self.draw.chance(30) else found)

    def axis(self, t: Tensor) -> int:
        return self.draw.integer(0, t.ndim - 1)

    def operand(self, t: Tensor) -> Tensor | int | float:
        """A number, an earlier Tensor, the same one in another order, or data of a shape that broadcasts."""
        earlier = [x for x in self.made if x.shape == t.shape and x is not t]
        if earlier and self.draw.chance(50):
            return self.draw.choice(earlier)
        if t.ndim and self.draw.chance(25):
            return t.flip(self.axis(t))
        if self.draw.chance(35):
            return self.draw.choice(NUMBERS)
        d = t.dtype if self.draw.chance(80) else self.draw.choice(self.dtypes)
        cut = self.draw.integer(0, t.ndim) if self.draw.chance(30) else 0
        return self.data(d, tuple(1 if self.draw.chance(25) else n for n in t.shape[cut:]))

    def combined(self, t: Tensor, other: Tensor | int | float) -> Tensor:
        """Two operands by one operation, or a choice between them."""
        if self.draw.chance(20):
            return t.__gt__(other).where(t, other)
        if t.dtype is dt.bool_ or (t.dtype.is_integer and self.draw.chance(15)):
            return _called(t.cast(dt.int32) if t.dtype.is_float else t, self.draw.choice(BITS), self.whole(other))
        return _called(t, self.draw.choice(ARITHMETIC if self.draw.chance(75) else COMPARISONS), other)

    def whole(self, other: Tensor | int | float) -> Tensor | int:
        """An operand without floats."""
        if isinstance(other, Tensor):
            return other.ne(0) if other.dtype.is_float else other
        return int(other)


def _called(t: Tensor, method: str, *arguments: object, **named: object) -> Tensor:
    found: Tensor = getattr(t, method)(*arguments, **named)
    return found


def _exact(t: Tensor) -> bool:
    """Whether a value is computed without floats."""
    return not any(u.dtype.is_float for u in toposort(t.uop))


# ------------------------------------------------------------------------------------------------------------ reductions


def _axes(c: Chain, t: Tensor) -> int | Shape | None:
    """One axis, most often one that stands before others, so that rows are reduced to a row; several; or all."""
    if c.draw.chance(75):
        return c.draw.integer(0, t.ndim - 2) if t.ndim > 1 and c.draw.chance(60) else c.axis(t)
    return None if c.draw.chance(30) else tuple(k for k in range(t.ndim) if c.draw.chance(60)) or c.axis(t)


def _reduced(c: Chain, t: Tensor) -> Tensor:
    return _called(t, c.draw.choice(REDUCTIONS), _axes(c, t), keepdim=c.draw.chance(30))


def _beside(c: Chain, t: Tensor) -> Tensor:
    """A Tensor and a reduction of it."""
    if max(t.shape) <= COUNTED and c.draw.chance(15):
        return c.combined(t, _called(t, c.draw.choice(POSITIONS), c.axis(t), keepdim=True))
    return c.combined(t, _called(t, c.draw.choice(REDUCTIONS), _axes(c, t), keepdim=True))


def _position(c: Chain, t: Tensor) -> Tensor:
    if max(t.shape) > COUNTED:
        return _reduced(c, t)
    axis = None if t.numel() <= COUNTED and c.draw.chance(20) else c.axis(t)
    return _called(t, c.draw.choice(POSITIONS), axis, keepdim=c.draw.chance(30))


def _prefix(c: Chain, t: Tensor) -> Tensor:
    """Prefix sums of an axis whose windows are not too many."""
    fits = [k for k, n in enumerate(t.shape) if n * t.numel() <= WINDOWS]
    return t.cumsum(c.draw.choice(fits)) if fits else _reduced(c, t)


# ------------------------------------------------------------------------------------------------------------ movement


def _permuted(c: Chain, t: Tensor) -> Tensor:
    order = list(range(t.ndim))
    for k in range(len(order) - 1, 0, -1):
        j = c.draw.integer(0, k)
        order[k], order[j] = order[j], order[k]
    return t.permute(*order) if c.draw.chance(60) else t.transpose(c.axis(t), c.axis(t))


def _padded(c: Chain, t: Tensor) -> Tensor:
    k, room = c.axis(t), c.room(t)
    most = min(4, t.shape[k] * (room - 1)) if room > 1 else 0
    pairs = [(c.draw.integer(0, most), c.draw.integer(0, most)) if j == k else None for j in range(t.ndim)]
    return t.pad(pairs, value=c.draw.choice((0, 0, 1, -1)) if t.dtype is not dt.bool_ else 0)


def _shrunk(c: Chain, t: Tensor) -> Tensor:
    bounds: list[tuple[int, int]] = []
    for n in t.shape:
        lo = c.draw.integer(0, min(3, n - 1)) if c.draw.chance(50) else 0
        bounds.append((lo, n - c.draw.integer(0, min(3, n - lo - 1)) if c.draw.chance(50) else n))
    return t.shrink(bounds)


def _sliced(c: Chain, t: Tensor) -> Tensor:
    """Steps forward and backward, and at times an axis less."""
    cuts = [slice(None, None, c.draw.choice((1, 1, 2, -1, 3, -2))) for _ in t.shape]
    cut = t[tuple(cuts)]
    return cut[(*(slice(None) for _ in range(c.axis(cut))), c.draw.choice((0, -1)))] if c.draw.chance(20) else cut


def _picked(c: Chain, t: Tensor) -> Tensor:
    """An axis by positions from data, or two axes by one set of positions each."""
    k = c.axis(t)
    count = c.extent(min(65, t.shape[k] * c.room(t)))
    before = (slice(None),) * k
    if k + 1 < t.ndim and c.draw.chance(25):
        return t[(*before, c.positions(t.shape[k], (count,)), c.positions(t.shape[k + 1], (count,)))]
    return t[(*before, c.positions(t.shape[k], (count,)))]


def _gathered(c: Chain, t: Tensor) -> Tensor:
    """What lies at positions from data, or at those of an extremum."""
    k = c.axis(t)
    if max(t.shape) > COUNTED:
        return _picked(c, t)
    if _exact(t) and c.draw.chance(50):
        return t.gather(k, _called(t, c.draw.choice(POSITIONS), k, keepdim=True))
    count = c.extent(min(33, t.shape[k] * c.room(t)))
    return t.gather(k, c.positions(t.shape[k], (*t.shape[:k], count, *t.shape[k + 1 :])))


def _looked_up(c: Chain, t: Tensor) -> Tensor:
    """Rows of a table, of which integers say which."""
    if not _exact(t) or t.dtype is dt.bool_ or c.room(t) < 2:
        return _gathered(c, t)
    n = c.extent(33)
    return c.data(c.draw.choice(c.dtypes), (n, c.extent(min(8, c.room(t)))))[t % n]


def _reshaped(c: Chain, t: Tensor) -> Tensor:
    k = c.axis(t)
    form = c.draw.choice(("merge", "split", "flat", "new"))
    if form == "merge" and k + 1 < t.ndim:
        return t.flatten(k, k + 1)
    factors = [f for f in range(2, min(t.shape[k], 33)) if t.shape[k] % f == 0]
    if form == "split" and factors:
        return t.unflatten(k, (c.draw.choice(factors), -1))
    return t.flatten() if form == "flat" else t.unsqueeze(k)


def _expanded(c: Chain, t: Tensor) -> Tensor:
    """A new axis in front, or each axis repeated."""
    n = c.extent(min(17, c.room(t)))
    if c.draw.chance(50):
        return t.expand(n, *t.shape)
    return t.repeat_interleave(n, c.axis(t)) if c.draw.chance(50) else t.repeat(*(n if k == 0 else 1 for k in range(t.ndim)))


def _joined(c: Chain, t: Tensor) -> Tensor:
    """A Tensor and another one of its shape, in a row or side by side."""
    if c.room(t) < 2:
        return t.roll(c.draw.integer(1, 3), c.axis(t))
    other = c.draw.choice([x for x in c.made if x.shape == t.shape] or [t.flip(c.axis(t))])
    return t.cat(other, dim=c.axis(t)) if c.draw.chance(60) else t.stack(other, dim=c.draw.integer(0, t.ndim))


# ------------------------------------------------------------------------------------------------------------ products


def _product(c: Chain, t: Tensor) -> Tensor:
    """By a matrix on either side, or by its own transpose."""
    if t.ndim > 1 and t.shape[-2] <= c.room(t) and c.draw.chance(25):
        return t @ t.transpose(-1, -2)
    n, d = c.extent(c.room(t)), t.dtype if c.draw.chance(80) else c.draw.choice(c.dtypes)
    if t.ndim == 1 or c.draw.chance(70):
        return t @ c.data(d, (t.shape[-1], n) if c.draw.chance(85) else (t.shape[-1],))
    return c.data(d, (n, t.shape[-2])) @ t


def _convolved(c: Chain, t: Tensor) -> Tensor:
    """A convolution over the last one or two axes, which become images of a batch."""
    spatial = min(2, max(1, t.ndim - 1))
    x = t.reshape((1,) * (2 + spatial - t.ndim) + t.shape) if t.ndim < 2 + spatial else t.flatten(0, t.ndim - 2 - spatial)
    kernel = tuple(c.draw.integer(1, min(3, n)) for n in x.shape[2:])
    channels = min(4, max(1, c.room(t) // math.prod(kernel)))
    w = c.data(t.dtype, (c.draw.integer(1, channels), x.shape[1], *kernel))
    return x.conv2d(w, stride=c.draw.choice((1, 1, 2)), padding=c.draw.choice((0, 0, 1)) if c.room(t) > 9 else 0)


def _pooled(c: Chain, t: Tensor) -> Tensor:
    """The greatest, or the mean, of windows of the last axis or two."""
    kernel = tuple(c.draw.integer(1, min(3, n)) for n in t.shape[-2:])
    if c.draw.chance(30):
        return t.avg_pool2d(kernel, stride=c.draw.choice((None, 1)))
    return t.max_pool2d(kernel, stride=c.draw.choice((None, 1, 2)))


# ------------------------------------------------------------------------------------------------------------ elementwise


def _unary(c: Chain, t: Tensor) -> Tensor:
    return _called(t.cast(dt.int32) if t.dtype is dt.bool_ else t, c.draw.choice(UNARY))


def _cast(c: Chain, t: Tensor) -> Tensor:
    return t.cast(c.draw.choice(c.dtypes))


def _where(c: Chain, t: Tensor) -> Tensor:
    """A choice by a comparison, a mask, or by what lies on one side of the diagonal."""
    form = c.draw.choice(("compare", "mask", "clamp", "triangle"))
    if form == "triangle" and t.ndim > 1 and max(t.shape[-2:]) <= COUNTED:
        return _called(t, c.draw.choice(("tril", "triu")), c.draw.integer(-1, 2))
    if form == "mask":
        return t.masked_fill(c.data(dt.bool_, t.shape), c.draw.choice(NUMBERS))
    if form == "clamp":
        return t.clamp(c.draw.integer(-2, 0), c.draw.integer(1, 3))
    return t.__gt__(c.draw.choice(NUMBERS)).where(t, c.operand(t))


class Step(NamedTuple):
    """`weight`: how often it is taken; `axes`: whether the Tensor must have one."""

    name: str
    make: Callable[[Chain, Tensor], Tensor]
    weight: int = 1
    axes: bool = True


# fmt: off
STEPS = (
    Step("reduction",  _reduced, 12),
    Step("beside",     _beside, 3),
    Step("position",   _position, 2),
    Step("prefix",     _prefix, 2),
    Step("rows",       lambda c, t: _called(t, c.draw.choice(ROWS), c.axis(t))),
    Step("product",    _product, 2),
    Step("convolved",  _convolved),
    Step("pooled",     _pooled),
    Step("flip",       lambda c, t: t.flip(c.axis(t))),
    Step("permute",    _permuted, 2),
    Step("pad",        _padded),
    Step("shrink",     _shrunk),
    Step("slice",      _sliced),
    Step("pick",       _picked),
    Step("gather",     _gathered),
    Step("look-up",    _looked_up),
    Step("reshape",    _reshaped, 2),
    Step("expand",     _expanded),
    Step("join",       _joined),
    Step("unary",      _unary, 2, axes=False),
    Step("binary",     lambda c, t: c.combined(t, c.operand(t)), 3, axes=False),
    Step("cast",       _cast, 1, axes=False),
    Step("where",      _where, 2, axes=False),
    Step("contiguous", lambda c, t: t.contiguous(), 1, axes=False),
)
# fmt: on
_WEIGHTED = tuple(s for s in STEPS for _ in range(s.weight))
_SCALARS = tuple(s for s in _WEIGHTED if not s.axes)


def generate(draw: Draw, declared: Declared) -> Case:
    """A chain of two to five steps, of a few that this chain is made of (swarm), on one Tensor of data."""
    c = Chain(draw, draw.choice(ELEMENTS), declared.of(DTYPES))
    t = c.data(draw.choice(c.dtypes), c.shape())
    steps = [draw.choice(_WEIGHTED) for _ in range(draw.integer(1, 4))]
    for _ in range(draw.choice((2, 3, 3, 4, 5))):
        c.made.append(t)
        t = (draw.choice(steps) if t.ndim else draw.choice(_SCALARS)).make(c, t)
    return Case(*capture(t, *([draw.choice(c.made[1:])] if draw.chance(15) else [])))
