"""R190: a floor division is the floor of the exact quotient. NumPy's of float32 is one less, as it divides what it has rounded."""

import math
import sys
from fractions import Fraction

import numpy as np

x, y = np.float32(-70421.23), np.float32(-0.011611078)
expected, got = math.floor(Fraction(float(x)) / Fraction(float(y))), int(x // y)
print(f"expected {expected}, got {got}")
sys.exit(got != expected)
