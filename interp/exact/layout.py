"""Movement ops as lists of source positions in row-major order; -1 stands for a filled zero (tinyspec, Movement table)."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from uops.interp.exact.values import Shape


class SourcePositions(NamedTuple):
    """The shape of a movement's result, and the source position of each of its elements."""

    shape: Shape
    positions: list[int]


def count(shape: Sequence[int]) -> int:
    """Return the number of elements of a shape."""
    return math.prod(shape)


def strides(shape: Shape) -> list[int]:
    """Return the row-major strides of a shape, in elements."""
    out = [1] * len(shape)
    for k in range(len(shape) - 2, -1, -1):
        out[k] = out[k + 1] * shape[k + 1]
    return out


def _positions(choices: Iterable[Sequence[int]]) -> list[int]:
    """Return the sums of one offset per axis, the last axis fastest."""
    return [sum(c) for c in itertools.product(*choices)]


def permute_positions(shape: Shape, order: Sequence[int]) -> SourcePositions:
    """Return the source positions of a Permute."""
    step = strides(shape)
    return SourcePositions(tuple(shape[k] for k in order), _positions([[i * step[k] for i in range(shape[k])] for k in order]))


def flip_positions(shape: Shape, flags: Sequence[bool]) -> SourcePositions:
    """Return the source positions of a Flip."""
    offsets = [[i * s for i in range(n)] for n, s in zip(shape, strides(shape), strict=True)]
    return SourcePositions(shape, _positions([o[::-1] if flag else o for o, flag in zip(offsets, flags, strict=True)]))


def expand_positions(shape: Shape, new: Shape) -> SourcePositions | None:
    """Return the source positions of an Expand; None if an axis is neither 1 nor the new extent, or a new extent is negative.

    New axes may appear on the left.
    """
    lead = len(new) - len(shape)
    if lead < 0 or any(n < 0 for n in new) or any(old not in (1, n) for old, n in zip(shape, new[lead:], strict=True)):
        return None
    step = [0] * lead + [0 if n == 1 else s for n, s in zip(shape, strides(shape), strict=True)]
    return SourcePositions(new, _positions([[i * s for i in range(n)] for n, s in zip(new, step, strict=True)]))


def reshape_positions(shape: Shape, new: Shape) -> SourcePositions | None:
    """Return the source positions of a Reshape; None if the numbers of elements differ."""
    if math.prod(shape) != math.prod(new) or any(n < 0 for n in new):
        return None
    return SourcePositions(new, list(range(math.prod(new))))


def shrink_positions(shape: Shape, offset: Shape, new: Shape) -> SourcePositions | None:
    """Return the source positions of a Shrink; None unless 0 <= o and o + s' <= s on every axis (R44)."""
    if len(offset) != len(shape) or len(new) != len(shape):
        return None
    if any(o < 0 or n < 0 or o + n > s for o, n, s in zip(offset, new, shape, strict=True)):
        return None
    step = strides(shape)
    offsets = [[(o + i) * t for i in range(n)] for o, n, t in zip(offset, new, step, strict=True)]
    return SourcePositions(new, _positions(offsets))


def pad_positions(shape: Shape, offset: Shape, new: Shape) -> SourcePositions | None:
    """Return the source positions of a Pad; None unless o >= 0 and o + s <= s' on every axis (R43)."""
    inner = shrink_positions(new, offset, shape)
    if inner is None:
        return None
    positions = [-1] * math.prod(new)
    for source, target in enumerate(inner.positions):
        positions[target] = source
    return SourcePositions(new, positions)


def outer_index_positions_minus_one_if_outside(
    shape: Shape, index_shapes_and_values: Sequence[tuple[Shape, Sequence[int]]]
) -> SourcePositions:
    """Return the source positions of an Index; -1 where an index is out of bounds.

    `index_shapes_and_values` has the shape and the values of the index of each leading axis (R45: outer product, and a negative
    index is out of bounds).
    """
    step = strides(shape)
    choices = [[i * step[k] if 0 <= i < shape[k] else -1 for i in values] for k, (_, values) in enumerate(index_shapes_and_values)]
    choices += [[i * step[k] for i in range(shape[k])] for k in range(len(index_shapes_and_values), len(shape))]
    new = tuple(n for s, _ in index_shapes_and_values for n in s) + shape[len(index_shapes_and_values) :]
    return SourcePositions(new, [-1 if -1 in c else sum(c) for c in itertools.product(*choices)])


def reduction_groups(shape: Shape, axes: Sequence[int]) -> tuple[Shape, list[list[int]]]:
    """Return the shape with `axes` collapsed to size 1, and the source positions that fall together in each element."""
    new = tuple(1 if k in axes else n for k, n in enumerate(shape))
    step = strides(shape)
    starts = _positions([[i * t for i in range(n)] for n, t in zip(new, step, strict=True)])
    inner = _positions([[i * step[k] for i in range(shape[k])] for k in axes])
    return new, [[start + i for i in inner] for start in starts]


def broadcast_shape(shapes: Sequence[Shape]) -> Shape | None:
    """Return the common shape, right-aligned; None if axes disagree (R41: 1 with n gives n, also for n = 0)."""
    rank = max(map(len, shapes), default=0)
    extents = []
    for k in range(-rank, 0):
        sizes = {s[k] for s in shapes if len(s) >= -k} - {1}
        if len(sizes) > 1:
            return None
        extents.append(sizes.pop() if sizes else 1)
    return tuple(extents)
