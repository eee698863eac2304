"""Threefry2x32 with 20 rounds (R22): `counter` and `key` are uint64, read and returned as (low, high) words."""

from __future__ import annotations

import numpy as np

from uops.interp.tensor.storage import Array

_u32, _u64 = np.dtype(np.uint32), np.dtype(np.uint64)


def _word(n: int) -> Array:
    return np.array(n, _u32)


#: Rotation r as two shifts, by r and by 32 - r.
_ROTATIONS = [(_word(r), _word(32 - r)) for r in (13, 15, 26, 6, 17, 29, 16, 24)]
_PARITY = _word(0x1BD11BDA)


def threefry(counter: Array, key: Array) -> Array:
    """Return the random bits of `counter` under `key`; the rounds work in place on the words `x0` and `x1`."""
    k0, k1 = _split_words(key)
    keys = (k0, k1, np.asarray(k0 ^ k1 ^ _PARITY))
    c0, c1 = _split_words(counter)
    x0, x1 = np.asarray(c0 + k0), np.asarray(c1 + k1)
    turned = np.empty_like(x1)
    for quad in range(5):
        for left, right in _ROTATIONS[4 * (quad % 2) :][:4]:
            x0 += x1
            np.left_shift(x1, left, turned)
            x1 >>= right
            x1 |= turned
            x1 ^= x0
        x0 += keys[(quad + 1) % 3]
        x1 += keys[(quad + 2) % 3]
        x1 += _word(quad + 1)
    out: Array = np.asarray(x0.astype(_u64) | (x1.astype(_u64) << np.uint64(32)))
    return out


def _split_words(x: Array) -> tuple[Array, Array]:
    """Return the low and high words as uint32."""
    return x.astype(_u32), np.asarray(x >> np.uint64(32)).astype(_u32)
