"""R17: Sin of float64 has the accuracy of float64. MLX gives that of float32, no number from 1e39 on, and 0.0 for -0.0."""

import math
import sys

import mlx.core as mx

mx.set_default_device(mx.cpu)
values = [2.5, 1e39, -0.0]
got = mx.sin(mx.array(values, mx.float64)).tolist()
print(f"expected {[math.sin(v) for v in values]}, got {got}")
sys.exit(got[0] != math.sin(2.5) or math.isnan(got[1]) or math.copysign(1, got[2]) > 0)
