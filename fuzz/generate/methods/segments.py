"""Sums of rows into segments that data select, as users write them: the addends that compare equal to the number of a segment.

Takes: choices, the rows, and a number of segments. Gives: the Tensor of sums. The heuristics make scatters of such sums
(`uops.compiler.passes.optimize.heuristics.scatter`). Some rows are selected just out of range on
either side, and are added to none.
"""

from __future__ import annotations

import numpy as np

from uops.backends.testing.values import draw_array
from uops.compiler.tensor import Tensor
from uops.spec.choices import ChoiceSource
from uops.spec.ir import dtypes as dt


def sum_rows_into_segments(draw: ChoiceSource, rows: Tensor, segments: int) -> Tensor:
    """Return the sums, of shape (segments, *rows.shape[1:]).

    Segments are counted forwards or backwards, from 0 or from another number. Each column may have a selection of its own, and a
    second condition may exclude addends.
    """
    shapes = ((1, rows.shape[0], *(1,) * (rows.ndim - 1)), (1, *rows.shape))  # alike in all columns, and by column
    selected = np.mod(draw_array(draw, draw.choice((dt.int32, dt.int32, dt.int64)), shapes[draw.chance(20)], "bits"), segments + 2)
    first = draw.choice((0, 0, 0, 1, 3))
    numbers = Tensor.arange(segments).reshape(segments, *(1,) * rows.ndim) + first
    if draw.chance(30):
        numbers = (segments - 1 + 2 * first) - numbers
    positions = Tensor.from_numpy(selected + selected.dtype.type(first - 1))
    hits = positions == numbers if draw.chance(70) else numbers == positions
    addends = rows.reshape(shapes[1])
    condition = draw.choice(("none",) * 3 + ("joined", "nested"))
    if condition != "none":
        mask = Tensor.from_numpy(draw_array(draw, dt.bool_, shapes[draw.chance(50)], "bits"))
        hits, addends = (hits & mask, addends) if condition == "joined" else (hits, mask.where(addends, 0))
    return hits.where(addends, 0).sum(1)
