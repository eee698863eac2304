"""R06: a shift by the width or more gives 0, or the sign. Numba takes the count modulo 32 or 64, where NumPy agrees with R06."""

import sys

import numba
import numpy as np

left, right = numba.njit(lambda a, n: np.left_shift(a, n)), numba.njit(lambda a, n: np.right_shift(a, n))
a, n = np.array([1, 3, -8], np.int64), np.array([64, 65, 66], np.int64)
expected, got = [np.left_shift(a, n).tolist(), np.right_shift(a, n).tolist()], [left(a, n).tolist(), right(a, n).tolist()]
print(f"expected {expected}, got {got}")
sys.exit(got != expected)
