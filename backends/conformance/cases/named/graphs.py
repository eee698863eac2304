"""Cases of the compositions and of the collectives."""

from __future__ import annotations

import math

import numpy as np

from uops.backends.arrays import STORAGE
from uops.backends.conformance.cases.bestiary.values import PAIR
from uops.backends.conformance.cases.common import Inputs, add_param
from uops.backends.conformance.cases.launches import small_numbers
from uops.backends.conformance.cases.named.generate import NUMBERS, Build, NamedCase
from uops.backends.contract import DEVICES_SURFACE, TENSOR_SURFACE
from uops.spec.ir import build as b
from uops.spec.ir import dtypes as dt
from uops.spec.ir.dtypes import DType
from uops.spec.ir.node import UOp
from uops.spec.rows import compositions
from uops.spec.rows.collectives import COLLECTIVES


def _add_small_param(d: DType, shape: tuple[int, ...], inputs: Inputs) -> UOp:
    return add_param(d, shape, inputs, values=small_numbers(d, math.prod(shape)).reshape(shape))


def _add_positions(inputs: Inputs, *values: int) -> UOp:
    return add_param(dt.int32, (len(values),), inputs, values=np.array(values, np.int32))


def _add_param_with_one_nan(d: DType, n: int, nan_position: int, inputs: Inputs) -> UOp:
    """Create a Param of numbers from 1 to 3, with a NaN at a position if the dtype has one."""
    values = (small_numbers(dt.int32, n) + 1).astype(STORAGE[d])
    if d.is_float:
        values[nan_position] = np.nan
    return add_param(d, (n,), inputs, values=values)


def _multiply_matrices_of_several_tiles(*, by_columns: bool) -> Build:
    """Build a product of which every axis has several blocks of a tensor core and a remainder, summed in at least 32 bits.

    Transposed, both operands lie in memory by columns.
    """

    def make(d: DType, i: Inputs) -> UOp:
        wide = d if d.bits >= dt.int32.bits else dt.float32 if d.is_float else dt.int32
        operands = []
        for rows, columns in ((48, 48), (48, 72)):
            x = _add_small_param(d, (columns, rows) if by_columns else (rows, columns), i)
            operands.append(b.cast(b.permute(x, (1, 0)) if by_columns else x, wide))
        return compositions.gemm(*operands)

    return make


#: (composition, edge class, builder) of each case.
_COMPOSITIONS: tuple[tuple[str, str, Build], ...] = (
    ("gemm", "matrices", lambda d, i: compositions.gemm(_add_small_param(d, (3, 4), i), _add_small_param(d, (4, 5), i))),
    ("gemm", "blocks", _multiply_matrices_of_several_tiles(by_columns=False)),
    ("gemm", "blocks-by-columns", _multiply_matrices_of_several_tiles(by_columns=True)),
    ("prefix_sum", "vector", lambda d, i: compositions.prefix_sum(_add_small_param(d, (5,), i))),
    (
        "prefix_sum",
        "empty",
        lambda d, i: b.tuple_(
            compositions.prefix_sum(_add_small_param(d, (0,), i)), compositions.prefix_sum(_add_small_param(d, (5,), i))
        ),
    ),
    ("arange", "numbers", lambda d, i: b.flip(compositions.arange(6, d), (True,))),
    ("arange", "empty", lambda d, i: b.tuple_(compositions.arange(0, d), compositions.arange(4, d))),
    (
        "gather",
        "out-of-range",
        lambda d, i: compositions.gather(_add_param_with_one_nan(d, 5, 2, i), _add_positions(i, 4, 0, 3, 5, 1, -1)),
    ),
    (
        "scatter_add",
        "out-of-range",
        lambda d, i: compositions.scatter_add(
            _add_small_param(d, (5,), i), _add_positions(i, 4, 0, 4, 9), _add_param_with_one_nan(d, 4, 3, i)
        ),
    ),
    (  # so many that they pay for a step per addend
        "scatter_add",
        "many",
        lambda d, i: compositions.scatter_add(
            _add_small_param(d, (600,), i),
            _add_positions(i, *(k * 7 % 601 - 1 for k in range(520))),
            _add_small_param(d, (520,), i),
        ),
    ),
)


def _apply_collective_from_one_device(collective: str) -> Build:
    return lambda d, i: COLLECTIVES[collective](b.flip(_add_small_param(d, (8,), i), (True,)), PAIR)


def _apply_collective_from_two_devices(collective: str) -> Build:
    """Build a collective of 8 elements on two devices."""

    def make(d: DType, i: Inputs) -> UOp:
        i["b1"] = small_numbers(d, 8)
        t = COLLECTIVES[collective](b.buffer(4, d, PAIR, unique=1), PAIR)
        return b.flip(t, (True,)) if t.axis is None else t

    return make


CASES = (
    *(NamedCase(f"Composition/{name}", edge, build, TENSOR_SURFACE, NUMBERS) for name, edge, build in _COMPOSITIONS),
    *(
        NamedCase(
            f"Collective/{name}",
            "values",
            _apply_collective_from_one_device(name)
            if name in ("broadcast", "scatter")
            else _apply_collective_from_two_devices(name),
            DEVICES_SURFACE,
            NUMBERS,
        )
        for name in COLLECTIVES
    ),
)
