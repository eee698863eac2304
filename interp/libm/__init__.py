"""Exp2, Log2, Sin and Pow of float64 within 0.51 ulp, from NumPy's +, -, *, ldexp and frexp alone.

The tables are computed with Python integers. Nothing here depends on a mathematical library or on the vector extensions that
NumPy was built with.
"""

from uops.interp.libm.functions import exp2, log2, pow_
from uops.interp.libm.sine import sin

__all__ = ["exp2", "log2", "pow_", "sin"]
