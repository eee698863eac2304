"""R12: all bits are compared. Numba compares int64 with uint64 in float64: 2**63 - 1 equals 2**63, for scalars and arrays."""

import sys

import numba
import numpy as np

equal, less = numba.njit(lambda a, b: a == b), numba.njit(lambda a, b: a < b)
a, b = np.array([2**63 - 1], np.int64), np.array([2**63], np.uint64)
expected, got = [False, True, False], [bool(equal(a, b)[0]), bool(less(a, b)[0]), bool(equal(a[0], b[0]))]
print(f"expected {expected}, got {got}; NumPy gives {[bool((a == b)[0]), bool((a < b)[0]), bool(a[0] == b[0])]}")
sys.exit(got != expected)
