"""pi and ln 2 to any number of bits, in integers, from arctangent series; own sums, checked in tests by a second formula."""

from __future__ import annotations

from collections.abc import Callable

_GUARD = 32
_STEP = 512


def arctan_inverse(n: int, bits: int, hyperbolic: bool = False) -> int:
    """arctan(1/n), or artanh(1/n), times 2**bits; at most `bits` units too small or too large."""
    power = (1 << bits) // n
    total, k, square, sign = power, 3, n * n, -1
    while power:
        power //= square
        total += power // k if hyperbolic or sign > 0 else -(power // k)
        k, sign = k + 2, -sign
    return total


def _machin(bits: int) -> int:
    """pi * 2**bits: 16 arctan(1/5) - 4 arctan(1/239)."""
    return 16 * arctan_inverse(5, bits) - 4 * arctan_inverse(239, bits)


def _ln2(bits: int) -> int:
    """ln 2 * 2**bits: 18 artanh(1/26) - 2 artanh(1/4801) + 8 artanh(1/8749)."""
    return 18 * arctan_inverse(26, bits, True) - 2 * arctan_inverse(4801, bits, True) + 8 * arctan_inverse(8749, bits, True)


class Constant:
    """A positive real, kept at the largest precision asked for so far."""

    def __init__(self, compute: Callable[[int], int]) -> None:
        self._compute = compute
        self._bits = 0
        self._value = 0
        self._cut: dict[int, int] = {}

    def __call__(self, bits: int) -> int:
        """The constant times 2**bits, less than 2 units below or above it."""
        known = self._cut.get(bits)
        if known is None:
            if bits + _GUARD > self._bits:
                self._bits = -(-(bits + _GUARD) // _STEP) * _STEP
                self._value = self._compute(self._bits)
            known = self._cut[bits] = self._value >> (self._bits - bits)
        return known


pi = Constant(_machin)
ln2 = Constant(_ln2)
