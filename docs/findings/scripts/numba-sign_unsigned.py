"""R12: the whole of an unsigned integer is compared. Numba's sign takes it as signed: sign(255) is -1, which is 255 in uint8."""

import sys

import numba
import numpy as np

sign = numba.njit(lambda a: np.sign(a))
arrays = [np.array([np.iinfo(d).max, 0, 5], d) for d in ("uint8", "uint16", "uint32", "uint64")]
expected, got = [[1, 0, 1]] * 4, [sign(a).tolist() for a in arrays]
print(f"expected {expected}, got {got}")
sys.exit(got != expected)
