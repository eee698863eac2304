"""pi and ln 2 to any number of bits, in integers, from arctangent series.

The sums are own ones, which tests check by a second formula.
"""

from __future__ import annotations

from collections.abc import Callable

#: Bits that are computed beyond those that a caller needs.
_GUARD = 32
#: The precision grows in multiples of this, in bits.
_STEP = 512


def fixed_point_arctan_of_inverse(n: int, bits: int, hyperbolic: bool = False) -> int:
    """Return arctan(1/n), or artanh(1/n), times 2**bits, at most `bits` units too small or too large."""
    power = (1 << bits) // n
    total, k, square, sign = power, 3, n * n, -1
    while power:
        power //= square
        total += power // k if hyperbolic or sign > 0 else -(power // k)
        k, sign = k + 2, -sign
    return total


def _compute_pi(bits: int) -> int:
    """Return pi * 2**bits as 16 arctan(1/5) - 4 arctan(1/239)."""
    return 16 * fixed_point_arctan_of_inverse(5, bits) - 4 * fixed_point_arctan_of_inverse(239, bits)


def _compute_ln2(bits: int) -> int:
    """Return ln 2 * 2**bits as 18 artanh(1/26) - 2 artanh(1/4801) + 8 artanh(1/8749)."""
    return (
        18 * fixed_point_arctan_of_inverse(26, bits, True)
        - 2 * fixed_point_arctan_of_inverse(4801, bits, True)
        + 8 * fixed_point_arctan_of_inverse(8749, bits, True)
    )


class PreciseConstant:
    """A positive real number, memoized at the greatest precision so far."""

    def __init__(self, compute: Callable[[int], int]) -> None:
        self._compute = compute
        self._bits = 0
        self._value = 0
        self._truncated: dict[int, int] = {}

    def __call__(self, bits: int) -> int:
        """Return the constant times 2**bits, less than 2 units below or above it."""
        truncated = self._truncated.get(bits)
        if truncated is None:
            if bits + _GUARD > self._bits:
                self._bits = -(-(bits + _GUARD) // _STEP) * _STEP
                self._value = self._compute(self._bits)
            truncated = self._truncated[bits] = self._value >> (self._bits - bits)
        return truncated


pi = PreciseConstant(_compute_pi)
ln2 = PreciseConstant(_compute_ln2)
