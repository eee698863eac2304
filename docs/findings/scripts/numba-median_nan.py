"""R11: an order of elements with a NaN gives NaN. Numba's median loses it, and its result depends on the place of the NaN."""

import sys

import numba
import numpy as np

median = numba.njit(lambda a: np.median(a))
arrays = [np.array(x) for x in ([np.nan, 1.0, 2.0, 7.0], [1.0, np.nan, 2.0, 7.0], [1.0, 2.0, 7.0, np.nan, 0.5])]
expected, got = [float(np.median(a)) for a in arrays], [median(a) for a in arrays]
print(f"expected {expected}, got {got}; its percentile gives {numba.njit(lambda a: np.percentile(a, 50))(arrays[0])}")
sys.exit(str(got) != str(expected))
