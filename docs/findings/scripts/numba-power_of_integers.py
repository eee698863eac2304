"""R165: a power of integers wraps. Numba computes it in float64: 127 ** 5 is 0 in int8, and (2**62 + 1) ** 1 is 2**62."""

import sys

import numba
import numpy as np

power = numba.njit(lambda a, b: np.power(a, b))
cases = [(127, 5, "int8"), (3, 40, "int32"), (2**62 + 1, 1, "int64"), (2**64 - 2, 1, "uint64")]
arrays = [(np.array([x], d), np.array([n], d)) for x, n, d in cases]
expected, got = [int(np.power(a, b)[0]) for a, b in arrays], [int(power(a, b)[0]) for a, b in arrays]
print(f"expected {expected}, got {got}")
sys.exit(got != expected)
