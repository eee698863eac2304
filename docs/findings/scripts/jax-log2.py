"""R17: log2(2^k) is k. XLA divides log(x) by log(2), and rounds in between to the dtype."""

import sys

import jax
import jax.numpy as jnp
import numpy as np

jax.config.update("jax_enable_x64", True)
wrong = {}
for d, k in ((jnp.float64, np.arange(-1000, 1000)), (jnp.float32, np.arange(-126, 127)), (jnp.float16, np.arange(-14, 15))):
    wrong[d.__name__] = f"{int((jnp.log2(jnp.array(2.0**k, d)) != jnp.array(k, d)).sum())} of {len(k)}"
eighth = float(jnp.log2(jnp.array(2048, jnp.float8_e5m2)))
print(f"expected no wrong logarithm and 12.0, got {wrong} and {eighth}")
sys.exit(any(not n.startswith("0 ") for n in wrong.values()) or eighth != 12)
