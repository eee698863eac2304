"""R17: 2^k is exact for an integer k. XLA computes exp(x * log(2)), and rounds the product to the dtype."""

import sys

import jax
import jax.numpy as jnp

jax.config.update("jax_enable_x64", True)
cases = [(jnp.float64, -3.0), (jnp.float32, 127.0), (jnp.float16, -3.0), (jnp.bfloat16, 5.0), (jnp.float8_e5m2, 5.0)]
expected = [2.0**x for _, x in cases]
got = [float(jnp.exp2(jnp.array(x, d))) for d, x in cases]
by_power = [float(jnp.power(jnp.array(2, d), jnp.array(x, d))) for d, x in cases]
print(f"expected {expected}, got {got}; jnp.power(2, x) gives {by_power}")
sys.exit(got != expected)
