"""Fingerprints of terms, as arrays of 64-bit numbers.

`combine` mixes an operation with its operands in order, `combine_unordered` with two operands in any order. The fingerprint of a
multiset is the sum of those of its addends modulo 2^64.
"""

from __future__ import annotations

import functools
import hashlib
from typing import Any

import numpy as np
import numpy.typing as npt

Fingerprints = npt.NDArray[np.uint64]

_FIRST, _SECOND = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)
_STEP, _FACTOR = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xD6E8FEB86659FD93)
_FIRST_INVERSE, _SECOND_INVERSE = (np.uint64(pow(int(x), -1, 1 << 64)) for x in (_FIRST, _SECOND))
_HIGH, _MIDDLE, _LOW = np.uint64(30), np.uint64(27), np.uint64(31)


@functools.lru_cache(maxsize=4096)
def fingerprint_of_words(*words: Any) -> np.uint64:
    """Return the fingerprint of words, such as the name of an operation and a dtype."""
    return np.uint64(int.from_bytes(hashlib.blake2b(repr(words).encode(), digest_size=8).digest(), "little"))


def scramble(x: Fingerprints) -> Fingerprints:
    """Return a one-to-one mixture of the bits of each number."""
    return _mix_in_place(np.array(x))


def _mix_in_place(x: Fingerprints) -> Fingerprints:
    """Mix the bits of each number (the finalizer of SplitMix64; Steele, Lea and Flood 2014)."""
    x ^= x >> _HIGH
    x *= _FIRST
    x ^= x >> _MIDDLE
    x *= _SECOND
    x ^= x >> _LOW
    return x


def unscramble(x: Fingerprints) -> Fingerprints:
    """Return the numbers that `scramble` turns into these."""
    x = x ^ (x >> _LOW) ^ (x >> np.uint64(2 * int(_LOW)))
    x *= _SECOND_INVERSE
    x ^= (x >> _MIDDLE) ^ (x >> np.uint64(2 * int(_MIDDLE)))
    x *= _FIRST_INVERSE
    x ^= (x >> _HIGH) ^ (x >> np.uint64(2 * int(_HIGH)))
    return x


def of_integers(x: Fingerprints) -> Fingerprints:
    """Return the fingerprints of integers modulo 2^64. A polynomial over terms is one, in which each term is a random number."""
    with np.errstate(over="ignore"):
        return _mix_in_place(np.asarray(x + _INTEGER))


def to_integers(x: Fingerprints) -> Fingerprints:
    """Return the integers modulo 2^64 that have these fingerprints."""
    with np.errstate(over="ignore"):
        return unscramble(np.asarray(x)) - _INTEGER


def combine(operation: np.uint64, *operands: Fingerprints) -> Fingerprints:
    """Return the fingerprints of an operation on operands, in their order."""
    mixed: Fingerprints = np.asarray(operation)
    with np.errstate(over="ignore"):
        for x in operands:
            mixed = _mix_in_place(np.asarray(mixed * _STEP + x))
    return mixed


def combine_unordered(operation: np.uint64, a: Fingerprints, b: Fingerprints) -> Fingerprints:
    """Return the fingerprints of a commutative operation on two operands."""
    with np.errstate(over="ignore"):
        both = np.asarray((a + _FACTOR) * (b + _FACTOR))
        both += operation * _STEP
        return _mix_in_place(both)


_INTEGER = fingerprint_of_words("integer")
