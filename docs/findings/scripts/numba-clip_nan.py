"""R11: a minimum and a maximum with a NaN are NaN. Numba's clip leaves out a bound that is NaN, where NumPy gives NaN."""

import sys

import numba
import numpy as np

clip = numba.njit(lambda a, low, high: np.clip(a, low, high))
a, low, high = np.array([1.0, 1.0]), np.array([np.nan, 0.0]), np.array([2.0, np.nan])
expected, got = np.clip(a, low, high).tolist(), clip(a, low, high).tolist()
print(f"expected {expected}, got {got}")
sys.exit(str(got) != str(expected))
