"""R02: a remainder has the sign of the divisor, as a zero too. Numba's zero is 0.0 for a negative divisor."""

import math
import sys

import numba
import numpy as np

remainder = numba.njit(lambda a, b: np.remainder(a, b))
a, b = np.array([0.0, 0.0, -0.0]), np.array([-1.0, -np.inf, -0.5])
expected, got = np.remainder(a, b).tolist(), remainder(a, b).tolist()
print(f"expected {expected}, got {got}; `%` of scalars gives {numba.njit(lambda x, y: x % y)(0.0, -1.0)}")
sys.exit([math.copysign(1, x) for x in got] != [math.copysign(1, x) for x in expected])
