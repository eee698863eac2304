"""R15: a conversion rounds once. XLA rounds to float32 first; `jnp.array` with a dtype, which NumPy converts, is right."""

import sys

import jax
import jax.numpy as jnp
import numpy as np

jax.config.update("jax_enable_x64", True)
half, brain = 1 + 2**-11 + 2**-30, 1 + 2**-8 + 2**-30
got = [
    float(jnp.array(half, jnp.float64).astype(jnp.float16)),
    float(jnp.array(brain, jnp.float64).astype(jnp.bfloat16)),
    float(jnp.array(0x40400001, jnp.int32).astype(jnp.bfloat16)),
]
expected = [1 + 2**-10, 1 + 2**-7, float(0x40800000)]
print(f"expected {expected}, got {got}; jnp.array(x, float16) gives {float(jnp.array(np.float64(half), jnp.float16))}")
sys.exit(got != expected)
