"""R04: INT_MIN // -1 wraps. Numba gives 0 in every signed dtype, where NumPy gives INT_MIN."""

import sys

import numba
import numpy as np

divide = numba.njit(lambda a, b: np.floor_divide(a, b))
pairs = [(np.array([np.iinfo(d).min], d), np.array([-1], d)) for d in ("int8", "int16", "int32", "int64")]
expected = [int(a[0]) for a, _ in pairs]
got = [int(divide(a, b)[0]) for a, b in pairs]
print(f"expected {expected}, got {got}")
sys.exit(got != expected)
