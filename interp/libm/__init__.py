"""Exp2, Log2, Sin and Pow of float64 from NumPy's +, -, *, ldexp and frexp alone, within 0.51 ulp; the tables are computed with
Python integers. Nothing here depends on a mathematical library or on the vector extensions NumPy was built with.
"""

from uops.interp.libm.functions import exp2, log2, pow_
from uops.interp.libm.sine import sin

__all__ = ["exp2", "log2", "pow_", "sin"]
