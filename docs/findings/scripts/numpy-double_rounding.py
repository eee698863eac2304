"""R15: a conversion rounds once. ml_dtypes converts through float32; NumPy's own float16 is rounded once."""

import sys

import ml_dtypes
import numpy as np

got = [
    float(np.float64(1 + 2**-8 + 2**-30).astype(ml_dtypes.bfloat16)),
    float(np.float64(1 + 2**-3 + 2**-30).astype(ml_dtypes.float8_e5m2)),
    float(np.array(0x40400001, np.int32).astype(ml_dtypes.bfloat16)),
]
expected = [1 + 2**-7, 1.25, float(0x40800000)]
print(f"expected {expected}, got {got}; float16 gives {float(np.float64(1 + 2**-11 + 2**-30).astype(np.float16))}")
sys.exit(got != expected)
