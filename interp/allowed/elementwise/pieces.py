"""Elementwise ops on sets that a plain interval cannot follow: with infinities, zeros, NaNs and poles inside.

Each operand is cut into seven pieces: -inf, the negative values, -0, +0, the positive values, +inf, NaN. On these every op of the
table is monotone or constant. The op is evaluated on the ends of every combination of pieces, and the results are merged into one
interval and flags. This is exact up to the hull, and slow, so only the few elements that need it come here.
"""

from __future__ import annotations

import numpy as np

from uops.interp.allowed.layout import Array, ArrayKernel, DTypeLayout, from_order_keys, to_order_keys
from uops.interp.allowed.value import ANY, NAN, NINF, NZERO, PINF, PZERO, SetArray

#: The most evaluations per call; more elements are taken in chunks.
MAX_EVALUATIONS = 1 << 20
#: An order key beyond that of every value.
KEY_LIMIT = np.iinfo(np.int64).max


def cut_into_piece_ends_and_presence(f: DTypeLayout, v: SetArray) -> tuple[Array, Array]:
    """Return the pieces that occur in a 1-D set of m elements: their ends (p, 2, m), and where each is present (p, m)."""
    interval, m = v.rows, v.rows.shape[1]
    flags = np.zeros(m, np.uint8) if v.flags is None else v.flags
    nan = np.isnan(interval[0])
    lo, hi = to_order_keys(f, interval[0]), to_order_keys(f, interval[2])
    top = f.key_max
    lo = np.where(nan, 1, lo).astype(np.int64)
    hi = np.where(nan, 0, hi).astype(np.int64)  # empty: nothing lies in [1, 0]
    ends = np.empty((7, 2, m), np.int64)
    present = np.empty((7, m), np.bool_)
    single = ((0, -top - 2, NINF), (2, -1, NZERO), (3, 0, PZERO), (5, top + 1, PINF))
    for row, key, flag in single:
        ends[row] = key
        present[row] = ((lo <= key) & (key <= hi)) | ((flags & flag) != 0)
    for row, least, most in ((1, -top - 1, -2), (4, 1, top)):
        ends[row, 0] = np.maximum(lo, least)
        ends[row, 1] = np.minimum(hi, most)
        present[row] = ends[row, 0] <= ends[row, 1]
        ends[row] = np.where(present[row], ends[row], least)
    values = np.empty((7, 2, m), f.np)
    values[:6] = from_order_keys(f, ends[:6])
    values[6] = np.nan
    present[6] = nan | ((flags & NAN) != 0)
    occurs = present.any(1)
    return values[occurs], present[occurs]


def evaluate_piece_corners(
    f: DTypeLayout, kernel: ArrayKernel, operands: list[SetArray], float32_kernel_if_no_inf: ArrayKernel | None = None
) -> SetArray:
    """Return the set of `kernel` over 1-D sets of one layout; `float32_kernel_if_no_inf` is it in float32, for a dtype without
    infinities."""
    m = operands[0].shape[0]
    n = len(operands)
    if m * 14**n > MAX_EVALUATIONS and m > 1:
        size = max(1, MAX_EVALUATIONS // 14**n)
        chunks = [slice(start, start + size) for start in range(0, m, size)]
        split = [[v.map_components(lambda x, lead, chunk=chunk: x[..., chunk]) for v in operands] for chunk in chunks]  # type: ignore[misc]
        return _concatenate_interval_sets(
            f, [evaluate_piece_corners(f, kernel, parts, float32_kernel_if_no_inf) for parts in split]
        )
    best = kernel(*(v.best for v in operands))
    grids, present = [], np.ones((1,) * n + (m,), np.bool_)
    for i, v in enumerate(operands):
        values, occurs = cut_into_piece_ends_and_presence(f, v)
        count = values.shape[0]
        shape = [1] * (2 * n)
        shape[i], shape[n + i] = count, 2
        grids.append(values.reshape(*shape, m))
        mask_shape = [1] * n
        mask_shape[i] = count
        present = present & occurs.reshape(*mask_shape, m)
    results, overflows = evaluate_clamping_nan_overflows_to_max(f, kernel, grids, float32_kernel_if_no_inf)
    blocks = present.size // m
    full = np.broadcast_to(results, (*present.shape[:-1], *(2,) * n, m)).reshape(blocks, 2**n, m)
    flags = _collect_anything_flags(operands, m)
    if overflows is not None:
        overflows = np.broadcast_to(overflows, (*present.shape[:-1], *(2,) * n, m)).reshape(blocks, 2**n, m)
        flags |= np.where((overflows & present.reshape(blocks, 1, m)).any((0, 1)), NAN, 0).astype(np.uint8)
    return merge_piece_results(f, full, present.reshape(blocks, m), best, flags)


def evaluate_clamping_nan_overflows_to_max(
    f: DTypeLayout, kernel: ArrayKernel, operands: list[Array], float32_kernel_for_overflow_sign: ArrayKernel | None
) -> tuple[Array, Array | None]:
    """Evaluate `kernel` on arrays, and return with its results where a dtype without infinities overflowed (None: nowhere).

    There the results are the greatest values of the dtype, with the signs that `float32_kernel_for_overflow_sign` gives (R15: e4m3
    overflows to NaN).
    """
    results = np.asarray(kernel(*operands))
    if float32_kernel_for_overflow_sign is None:
        return results, None
    overflows = np.isnan(results)
    for x in operands:
        overflows = overflows & ~np.isnan(x)
    if not overflows.any():
        return results, None
    wide_results = np.asarray(float32_kernel_for_overflow_sign(*(x.astype(np.float32) for x in operands)))
    overflows &= ~np.isnan(wide_results)
    return np.where(overflows, np.copysign(f.max, wide_results), results.astype(np.float32)).astype(f.np), overflows


def _collect_anything_flags(operands: list[SetArray], num_elements: int) -> Array:
    flags = np.zeros(num_elements, np.uint8)
    for v in operands:
        if v.flags is not None:
            flags |= v.flags & ANY
    return flags


def merge_piece_results(f: DTypeLayout, results: Array, present: Array, best: Array, flags: Array) -> SetArray:
    """Return one set per element from results (blocks, corners, m) of the present blocks.

    The corners of a block bound the results of the combination of pieces that it stands for.
    """
    occurs = present[:, None]
    keys = to_order_keys(f, results).astype(np.int64)
    top = f.key_max
    nan = np.isnan(results)
    flags = flags | np.where((nan & occurs).any((0, 1)), NAN, 0).astype(np.uint8)
    for key, flag in ((top + 1, PINF), (-top - 2, NINF), (0, PZERO), (-1, NZERO)):
        if (key != top + 1 and key != -top - 2) or f.dtype.has_inf:
            flags = flags | np.where(((keys == key) & occurs & ~nan).any((0, 1)), flag, 0).astype(np.uint8)
    # A block that reaches an infinity or a zero and something finite passes through all between: clamp its ends into range.
    ordinary = ~nan & (keys >= -top - 1) & (keys <= top) & (keys != 0) & (keys != -1)
    is_interval = ordinary.any(1, keepdims=True) | (keys.min(1, keepdims=True) != keys.max(1, keepdims=True))
    use, clamped = is_interval & occurs & ~nan, np.clip(keys, -top - 1, top)
    low = np.where(use, clamped, KEY_LIMIT).min((0, 1))
    high = np.where(use, clamped, -KEY_LIMIT).max((0, 1))
    return make_set_absorbing_adjacent_flags(f, low, high, best, flags)


def _special_value_keys(f: DTypeLayout) -> tuple[tuple[int, int], ...]:
    """Return each flag with the key of its value."""
    return ((NINF, -f.key_max - 2), (NZERO, -1), (PZERO, 0), (PINF, f.key_max + 1))


def make_set_absorbing_adjacent_flags(f: DTypeLayout, lo_keys: Array, hi_keys: Array, best: Array, flags: Array) -> SetArray:
    """Return the canonical set of the keys from `lo_keys` to `hi_keys` and the flagged values.

    An empty interval takes a flagged value. Flags next to or inside the interval become part of it.
    """
    empty = lo_keys > hi_keys
    if empty.any():
        for flag, key in _special_value_keys(f):
            use = empty & ((flags & flag) != 0)
            lo_keys, hi_keys = np.where(use, key, lo_keys), np.where(use, key, hi_keys)
            empty &= ~use
    for flag, key in (*_special_value_keys(f), (NZERO, -1), (NINF, -f.key_max - 2)):
        has = (flags & flag) != 0
        lo_keys = np.where(has & (lo_keys == key + 1), key, lo_keys)
        hi_keys = np.where(has & (hi_keys == key - 1), key, hi_keys)
        flags = np.where(has & (lo_keys <= key) & (key <= hi_keys), flags & (0xFF ^ flag), flags).astype(np.uint8)
    interval = np.empty((3, *best.shape), f.np)
    interval[0] = from_order_keys(f, np.where(empty, 0, lo_keys))
    interval[2] = from_order_keys(f, np.where(empty, 0, hi_keys))
    interval[1] = best
    if empty.any():
        interval[:, empty] = np.nan
        flags = np.where(empty, flags & (0xFF ^ NAN), flags).astype(np.uint8)
    return SetArray(f, interval, flags if flags.any() else None)


def _concatenate_interval_sets(f: DTypeLayout, parts: list[SetArray]) -> SetArray:
    flags = None
    if any(p.flags is not None for p in parts):
        flags = np.concatenate([np.zeros(p.shape, np.uint8) if p.flags is None else p.flags for p in parts])
    return SetArray(f, np.concatenate([p.rows for p in parts], axis=1), flags)
