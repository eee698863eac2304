"""R16: a quotient is rounded once to its dtype. Numba gives float32 for narrow integers, where NumPy gives float64."""

import sys

import numba
import numpy as np

divide = numba.njit(lambda a, b: np.true_divide(a, b))
arrays = [np.array([1, 7], d) for d in ("int8", "uint8", "int16", "uint16", "int32")]
expected, got = [str(np.true_divide(a, a).dtype) for a in arrays], [str(divide(a, a).dtype) for a in arrays]
print(f"expected {expected}, got {got}; 1 / 7 in int8 is {divide(arrays[0], arrays[0][::-1].copy())[0]!r}")
sys.exit(got != expected)
