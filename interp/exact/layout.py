"""Movement ops as lists of source positions in row-major order; -1 stands for a filled zero (tinyspec, Movement table)."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Sequence

from uops.interp.exact.values import Shape

Layout = tuple[Shape, list[int]]


def count(shape: Sequence[int]) -> int:
    """Number of elements."""
    return math.prod(shape)


def strides(shape: Shape) -> list[int]:
    out = [1] * len(shape)
    for k in range(len(shape) - 2, -1, -1):
        out[k] = out[k + 1] * shape[k + 1]
    return out


def _positions(choices: Iterable[Sequence[int]]) -> list[int]:
    """Sums of one offset per axis, last axis fastest."""
    return [sum(c) for c in itertools.product(*choices)]


def permute(shape: Shape, order: Sequence[int]) -> Layout:
    step = strides(shape)
    return tuple(shape[k] for k in order), _positions([[i * step[k] for i in range(shape[k])] for k in order])


def flip(shape: Shape, flags: Sequence[bool]) -> Layout:
    along = [[i * s for i in range(n)] for n, s in zip(shape, strides(shape), strict=True)]
    return shape, _positions([a[::-1] if f else a for a, f in zip(along, flags, strict=True)])


def expand(shape: Shape, new: Shape) -> Layout | None:
    """None where an axis is neither 1 nor the new extent; new axes may appear on the left."""
    lead = len(new) - len(shape)
    if lead < 0 or any(old not in (1, n) for old, n in zip(shape, new[lead:], strict=True)):
        return None
    step = [0] * lead + [0 if n == 1 else s for n, s in zip(shape, strides(shape), strict=True)]
    return new, _positions([[i * s for i in range(n)] for n, s in zip(new, step, strict=True)])


def reshape(shape: Shape, new: Shape) -> Layout | None:
    if math.prod(shape) != math.prod(new) or any(n < 0 for n in new):
        return None
    return new, list(range(math.prod(new)))


def shrink(shape: Shape, offset: Shape, new: Shape) -> Layout | None:
    """None unless 0 <= o and o + s' <= s on every axis (R44)."""
    if len(offset) != len(shape) or len(new) != len(shape):
        return None
    if any(o < 0 or n < 0 or o + n > s for o, n, s in zip(offset, new, shape, strict=True)):
        return None
    step = strides(shape)
    return new, _positions([[(o + i) * t for i in range(n)] for o, n, t in zip(offset, new, step, strict=True)])


def pad(shape: Shape, offset: Shape, new: Shape) -> Layout | None:
    """None unless o >= 0 and o + s <= s' on every axis (R43)."""
    inner = shrink(new, offset, shape)
    if inner is None:
        return None
    out = [-1] * math.prod(new)
    for source, target in enumerate(inner[1]):
        out[target] = source
    return new, out


def index(shape: Shape, picks: Sequence[tuple[Shape, Sequence[int]]]) -> Layout:
    """`picks`: per leading axis the index's shape and values; -1 where a value is out of bounds (R45: outer, negative is out)."""
    step = strides(shape)
    choices = [[i * step[k] if 0 <= i < shape[k] else -1 for i in values] for k, (_, values) in enumerate(picks)]
    choices += [[i * step[k] for i in range(shape[k])] for k in range(len(picks), len(shape))]
    new = tuple(n for s, _ in picks for n in s) + shape[len(picks) :]
    return new, [-1 if -1 in c else sum(c) for c in itertools.product(*choices)]


def groups(shape: Shape, axes: Sequence[int]) -> tuple[Shape, list[list[int]]]:
    """The positions that fall together when `axes` collapse to size 1, per element of the result."""
    new = tuple(1 if k in axes else n for k, n in enumerate(shape))
    step = strides(shape)
    kept = _positions([[i * t for i in range(1 if k in axes else n)] for k, (n, t) in enumerate(zip(shape, step, strict=True))])
    inner = _positions([[i * step[k] for i in range(shape[k])] for k in axes])
    return new, [[base + i for i in inner] for base in kept]


def broadcast(shapes: Sequence[Shape]) -> Shape | None:
    """R41: right-aligned, 1 with n gives n, also for n = 0; None where axes disagree."""
    rank = max(map(len, shapes), default=0)
    out = []
    for k in range(-rank, 0):
        sizes = {s[k] for s in shapes if len(s) >= -k} - {1}
        if len(sizes) > 1:
            return None
        out.append(sizes.pop() if sizes else 1)
    return tuple(out)
