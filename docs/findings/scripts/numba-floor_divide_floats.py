"""R01: floor division rounds the exact quotient down. Numba rounds the quotient first: 1 // 0.1 is 10, and 1 // -inf is -0.0."""

import sys

import numba
import numpy as np

divide = numba.njit(lambda a, b: np.floor_divide(a, b))
a, b = np.array([1.0, 6.0, 1.0, np.inf]), np.array([0.1, 0.1, -np.inf, 2.0])
with np.errstate(all="ignore"):
    expected, got = np.floor_divide(a, b).tolist(), divide(a, b).tolist()
print(f"expected {expected}, got {got}; `//` of scalars gives {numba.njit(lambda x, y: x // y)(1.0, 0.1)}")
sys.exit(str(got) != str(expected))
