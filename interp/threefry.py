"""Threefry2x32 with 20 rounds (R22): `counter` and `key` are uint64, read and returned as (low, high) words."""

from __future__ import annotations

import numpy as np

from uops.interp.storage import Array

_ROTATIONS = (13, 15, 26, 6, 17, 29, 16, 24)
_PARITY = np.uint32(0x1BD11BDA)
_u32, _u64 = np.uint32, np.uint64


def threefry(counter: Array, key: Array) -> Array:
    k0, k1 = key.astype(_u32), (key >> 32).astype(_u32)
    keys = (k0, k1, k0 ^ k1 ^ _PARITY)
    x0, x1 = counter.astype(_u32) + k0, (counter >> 32).astype(_u32) + k1
    for quad in range(5):
        for turn in range(4):
            r = _ROTATIONS[4 * (quad % 2) + turn]
            x0 = x0 + x1
            x1 = ((x1 << _u32(r)) | (x1 >> _u32(32 - r))) ^ x0
        x0 = x0 + keys[(quad + 1) % 3]
        x1 = x1 + keys[(quad + 2) % 3] + _u32(quad + 1)
    out: Array = np.asarray(x0.astype(_u64) | (x1.astype(_u64) << _u64(32)))
    return out
