"""R16: a quotient is rounded once. 49k / 49 is exact; XLA multiplies by the reciprocal where the divisor is broadcast."""

import sys

import jax
import jax.numpy as jnp
import numpy as np

jax.config.update("jax_enable_x64", True)
x = np.arange(1.0, 1000.0) * 49
broadcast = int((jnp.divide(x, np.float64(49)) != np.arange(1.0, 1000.0)).sum())
whole = int((jnp.divide(x, np.full(999, 49.0)) != np.arange(1.0, 1000.0)).sum())
print(f"expected 0 wrong quotients of 999, got {broadcast} by a scalar, {whole} by an array of the same numbers")
sys.exit(broadcast > 0)
