"""Threefry2x32 with 20 rounds (R22), after Salmon, Moraes, Dror and Shaw, 2011."""

from __future__ import annotations

_ROTATIONS = (13, 15, 26, 6, 17, 29, 16, 24)
_PARITY = 0x1BD11BDA
_MASK = 0xFFFFFFFF


def threefry(counter: int, key: int) -> int:
    """Return the random 64 bits of a 64-bit counter under a 64-bit key; each is a (low, high) pair of 32-bit words."""
    keys = (key & _MASK, key >> 32, (key & _MASK) ^ (key >> 32) ^ _PARITY)
    x0 = ((counter & _MASK) + keys[0]) & _MASK
    x1 = ((counter >> 32) + keys[1]) & _MASK
    for i in range(20):
        rotation = _ROTATIONS[i % 8]
        x0 = (x0 + x1) & _MASK
        x1 = ((x1 << rotation | x1 >> (32 - rotation)) & _MASK) ^ x0
        if i % 4 == 3:
            n = i // 4 + 1
            x0 = (x0 + keys[n % 3]) & _MASK
            x1 = (x1 + keys[(n + 1) % 3] + n) & _MASK
    return x1 << 32 | x0
