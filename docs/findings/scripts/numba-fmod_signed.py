"""R02: fmod has the sign of the dividend. Numba's fmod of signed integers takes the bits as unsigned if one is negative."""

import sys

import numba
import numpy as np

fmod = numba.njit(lambda a, b: np.fmod(a, b))
a, b = np.array([-7, 7, -128, -128], np.int8), np.array([2, -2, 7, -1], np.int8)
expected, got = [-1, 1, -2, 0], fmod(a, b).tolist()
print(f"expected {expected}, got {got}")
sys.exit(got != expected)
