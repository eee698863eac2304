"""The value of a tensor-core instruction on fragments, and the error it is allowed (R93, R119: its products and sums).

`multiply_fragments(d, a, b, acc)` takes fragments of shape (threads, elements), in the NumPy dtypes of the descriptor, and
gives D's. The lane maps gather A, B and C; D = A B + C with exact products and one rounding; the map of C scatters D. Integers
wrap. It raises SpecError for a fragment of another shape or dtype. Where lanes that hold copies disagree, it raises a Trap that
names both.

`multiply_tile_grid(d, grid, a, b, acc)` does this for each tile of a grid (R178, the configuration of a Wmma).

`allowed_error(d, a, b, acc)` bounds, per element of D, the distance between `multiply_fragments` and any result that the
descriptor's accumulator permits. It is infinity where some order may overflow, or no bound holds.
"""

from __future__ import annotations

import math
from fractions import Fraction
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from uops.interp.ops.rounding import NARROW
from uops.interp.ops.sums import round_fraction_to_float64, round_sum_to_odd
from uops.interp.tensor.storage import BITS, NUMPY, Array
from uops.spec.errors import SpecError, Trap
from uops.spec.ir import dtypes as dt
from uops.spec.ir.dtypes import DType
from uops.spec.wmma import Accumulator, Descriptor, LaneElement, LaneMap, find_all_holders_of_element

f64 = np.float64


@lru_cache(maxsize=256)
def _lane_map_indices(m: LaneMap) -> tuple[Array, Array]:
    """Return the rows and columns of a map, each of shape (threads, elements)."""
    table = np.array([[m.place(t, e) for e in range(m.elements)] for t in range(m.lanes)], np.intp)
    return table[..., 0], table[..., 1]


def _bit_pattern(a: Array, d: DType) -> Array:
    """Return the bits of a float as integers, other values as they are."""
    return a.view(BITS[d]) if d.is_float else a


def gather_matrix_and_check_copies(d: Descriptor, operand: str, fragments: Array) -> Array:
    """Return the matrix of operand A, B or C from the fragments of all lanes."""
    dtype = d.dtype_out if operand == "C" else d.dtype_in
    m = d.map(operand)
    if fragments.shape != (m.lanes, m.elements) or fragments.dtype != NUMPY[dtype]:
        raise SpecError(
            f"{d.name}: {operand} needs fragments of shape {(m.lanes, m.elements)} and dtype {NUMPY[dtype]}, "
            f"got {fragments.shape} and {fragments.dtype} (R118)"
        )
    rows, cols = _lane_map_indices(m)
    matrix: Array = np.empty(d.shape(operand), fragments.dtype)
    matrix[rows, cols] = fragments
    if d.copies(operand) > 1:
        _trap_if_copies_differ(d, operand, fragments, _bit_pattern(matrix, dtype)[rows, cols], _bit_pattern(fragments, dtype))
    return matrix


def _trap_if_copies_differ(d: Descriptor, operand: str, fragments: Array, gathered_copy: Array, copies: Array) -> None:
    """Raise Trap if lanes that hold copies of an element disagree (R119)."""
    differs = gathered_copy != copies
    if not differs.any():
        return
    first = LaneElement(*(int(k) for k in np.argwhere(differs)[0]))
    other = next(h for h in find_all_holders_of_element(d, operand, first) if copies[h] != copies[first])
    raise Trap(
        f"{d.name}: copies of {operand}{list(d.map(operand).place(*first))} differ: "
        f"{first} holds {fragments[first]}, {other} holds {fragments[other]} (R119)"
    )


def scatter_fragments(d: Descriptor, matrix: Array) -> Array:
    """Return D's fragments from its matrix."""
    return np.ascontiguousarray(matrix[_lane_map_indices(d.c)])


def multiply_fragments(d: Descriptor, a: Array, b: Array, acc: Array) -> Array:
    """Return D's fragments of A B + C; see the module."""
    left, right, start = (
        gather_matrix_and_check_copies(d, "A", a),
        gather_matrix_and_check_copies(d, "B", b),
        gather_matrix_and_check_copies(d, "C", acc),
    )
    if d.dtype_out.is_float:
        return scatter_fragments(d, _multiply_floats_rounding_once(left, right, start, d.dtype_out))
    whole = left.astype(np.int64) @ right.astype(np.int64) + start.astype(np.int64)  # modulo 2^64, so modulo 2^n
    return scatter_fragments(d, whole.astype(NUMPY[d.dtype_out]))


def multiply_tile_grid(d: Descriptor, grid: tuple[int, int], a: Array, b: Array, acc: Array) -> Array:
    """Return D's fragments of a grid of products, `grid` being the numbers of tiles along N and along M (R178).

    A lane holds a fragment of A per tile along M, one after the other. Of B it holds one per tile along N. Those of C and D
    stand row by row. Raises SpecError if a lane holds another number of elements.
    """
    along_n, along_m = grid
    tiles_a, tiles_b = _split_tiles(d, "A", a, along_m), _split_tiles(d, "B", b, along_n)
    tiles_c = _split_tiles(d, "C", acc, along_m * along_n)
    products = [multiply_fragments(d, tiles_a[k // along_n], tiles_b[k % along_n], tile) for k, tile in enumerate(tiles_c)]
    return np.concatenate(products, axis=1)


def _split_tiles(d: Descriptor, operand: str, fragments: Array, count: int) -> list[Array]:
    """Return the fragments of each of `count` tiles, each of shape (threads, elements)."""
    if fragments.ndim != 2 or fragments.shape[1] % count:
        raise SpecError(f"{d.name}: {operand} needs the fragments of {count} tiles, got shape {fragments.shape} (R178)")
    return np.split(fragments, count, axis=1)


# Floats


def _nonfinite_mask(a: Array, b: Array, c: Array) -> Array:
    """Return a mask of the elements of D that have an infinity or NaN among their operands."""
    rows, columns = np.asarray(np.isfinite(a).all(1)), np.asarray(np.isfinite(b).all(0))
    return np.asarray(~(rows[:, None] & columns & np.isfinite(c)))


def _multiply_floats_rounding_once(left: Array, right: Array, start: Array, out: DType) -> Array:
    """Return left @ right + start, each exact sum rounded once to `out`.

    Products of all dtypes but float64 are exact in float64.
    """
    a, b, c = left.astype(f64), right.astype(f64), start.astype(f64)
    special = _nonfinite_mask(a, b, c)
    with np.errstate(all="ignore"):
        products = a[:, :, None] * b[None, :, :]  # [row, k, column]
        nonfinite = ~(np.isfinite(a)[:, :, None] & np.isfinite(b)[None, :, :])
        sums = np.where(nonfinite, products, 0.0).sum(1) + np.where(np.isfinite(c), 0.0, c)  # final for special elements
        for i, j in np.argwhere(~special):
            if out is dt.float64:
                sums[i, j] = round_fraction_to_float64(
                    sum((Fraction(x) * Fraction(y) for x, y in zip(a[i], b[:, j])), Fraction(c[i, j]))
                )
            else:
                sums[i, j] = round_sum_to_odd([*products[i, :, j].tolist(), float(c[i, j])])
        return NARROW[out](sums)


# The allowed error


def allowed_error(d: Descriptor, a: Array, b: Array, acc: Array) -> Array:
    """Return, per element of D's fragments, the greatest distance from `multiply_fragments` that the accumulator permits.

    S is the sum of magnitudes of the products and of C's element, and e the relative errors of `sum_relative_errors_and_count`.
    The bound is e S / (1 - e), plus the loss by underflow, plus the one rounding of `multiply_fragments`. It is infinity where
    some order may overflow, and everywhere if e is 1 or more. Otherwise it is 0 where an operand is infinite or NaN: the results
    are equal, or both NaN. If the accumulator flushes, it is infinity there for a factor that is subnormal. The errors are float64.
    """
    left, right, start = (
        gather_matrix_and_check_copies(d, "A", a),
        gather_matrix_and_check_copies(d, "B", b),
        gather_matrix_and_check_copies(d, "C", acc),
    )
    if not d.dtype_out.is_float:
        return np.zeros((d.c.lanes, d.c.elements))
    out, flushes = d.dtype_out, d.accumulator.flushes
    a_size, b_size, c_size = (
        _finite_magnitudes_keeping_zeroing_or_raising_subnormals(left, d.dtype_in),
        _finite_magnitudes_keeping_zeroing_or_raising_subnormals(right, d.dtype_in),
        _finite_magnitudes_keeping_zeroing_or_raising_subnormals(start, out),
    )
    relative, count = sum_relative_errors_and_count(d.accumulator, d.dims[2])
    with np.errstate(all="ignore"):
        total = a_size.aligned @ b_size.aligned + c_size.aligned
        lost = a_size.whole @ b_size.whole - a_size.normal @ b_size.normal + c_size.whole - c_size.normal if flushes else 0.0
        unit = out.smallest_normal if flushes else out.smallest_subnormal
        growth = relative / (1 - relative) if relative < 1 else math.inf
        bound = total * (growth + out.unit_roundoff) + (count + 1) * unit + lost
        bound *= 1 + 2.0**-40  # computed with roundings of 2^-53 each
        bound = np.where(total + bound < out.max_finite, bound, math.inf)
    special = _nonfinite_mask(left.astype(f64), right.astype(f64), start.astype(f64))
    unsure = flushes & (np.asarray(a_size.subnormal.any(1))[:, None] | b_size.subnormal.any(0))  # 0 times infinity
    return scatter_fragments(d, np.where(special & ~unsure & np.isfinite(bound), 0.0, np.where(special, math.inf, bound)))


def sum_relative_errors_and_count(accumulator: Accumulator, num_products: int) -> tuple[float, int]:
    """Return the sum of the relative errors of all roundings and cuts of k products, and their number.

    A rounding to nearest errs by at most half the last bit, any other by less than the whole one. Each of a step's addends,
    `block` products and the running sum, may be cut at alignment by one unit of the greatest; one more for a step that aligns
    twice.
    """
    steps = -(-num_products // accumulator.block)
    each = 2.0 ** -(accumulator.bits + accumulator.nearest)
    if accumulator.align is None:
        return num_products * each, num_products
    cuts = accumulator.block + 2
    return steps * (cuts * 2.0**-accumulator.align + each), steps * (cuts + 1)


class _MagnitudesBySubnormalTreatment(NamedTuple):
    """Magnitudes in float64, with infinity and NaN as 0.

    `whole` has all, `normal` has subnormals as 0, and `aligned` has them as the least normal, as which they align.
    """

    whole: Array
    normal: Array
    aligned: Array
    subnormal: Array


def _finite_magnitudes_keeping_zeroing_or_raising_subnormals(x: Array, d: DType) -> _MagnitudesBySubnormalTreatment:
    """Return the magnitudes of values of dtype `d`."""
    wide = np.abs(x.astype(f64))
    wide = np.where(np.isfinite(wide), wide, 0.0)
    subnormal = (wide > 0) & (wide < d.smallest_normal)
    return _MagnitudesBySubnormalTreatment(
        wide, np.where(subnormal, 0.0, wide), np.where(subnormal, d.smallest_normal, wide), subnormal
    )
