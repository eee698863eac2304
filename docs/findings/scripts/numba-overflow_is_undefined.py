"""R05: integers wrap. Numba's add and multiply of arrays promise LLVM that they do not overflow: -102 + -128 is -102 in int8."""

import sys

import numba
import numpy as np


def add():
    return np.add(np.asarray(np.int8(-102)), np.asarray(np.int8(-128)))


compiled, loop = numba.njit(add), numba.njit(lambda a, b: np.multiply(a, b))
with np.errstate(over="ignore"):
    expected, got = int(add()), int(compiled())
loop(np.ones(1, np.int8), np.ones(1, np.int8))
has_nsw = "mul nsw i8" in loop.inspect_llvm(loop.signatures[0])
print(f"expected {expected}, got {got}; the code of a product of arrays has `mul nsw i8`: {has_nsw}")
sys.exit(got != expected)
