"""R192: NaNs are last. NumPy does not sort arrays of ml_dtypes' bfloat16 that have one; of its own float16 it does."""

import sys

import ml_dtypes
import numpy as np

numbers = [2.0, float("nan"), 1.0]
got = [np.sort(np.array(numbers, d)).tolist() for d in (np.float16, ml_dtypes.bfloat16)]
print(f"expected [1.0, 2.0, nan] twice, got {got}")
sys.exit(got[1][:2] != [1.0, 2.0])
