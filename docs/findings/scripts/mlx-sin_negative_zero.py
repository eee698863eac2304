"""R17: Sin of -0.0 is -0.0, as C says. MLX gives 0.0 for it in every float dtype, alone and beside other elements."""

import math
import sys

import mlx.core as mx

mx.set_default_device(mx.cpu)
dtypes = (mx.float16, mx.bfloat16, mx.float32, mx.float64)
got = {str(d): mx.sin(mx.array([-0.0] * n, d)).tolist()[0] for d in dtypes for n in (1, 16)}
print(f"expected -0.0 four times, got {got}; mx.tanh gives {mx.tanh(mx.array([-0.0])).item()}")
sys.exit(any(math.copysign(1, v) > 0 for v in got.values()))
