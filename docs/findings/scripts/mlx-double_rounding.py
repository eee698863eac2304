"""R15: Cast rounds once. MLX rounds float64 and wide integers to float32 first on the way to float16 and bfloat16."""

import sys

import mlx.core as mx

mx.set_default_device(mx.cpu)
cases = [
    (1 + 2**-11 + 2**-40, mx.float64, mx.float16, 1 + 2**-10),
    (1 + 2**-8 + 2**-40, mx.float64, mx.bfloat16, 1 + 2**-7),
    (2**30 + 2**22 + 1, mx.int32, mx.bfloat16, 2**30 + 2**23),
]
got = [mx.array(x, source).astype(target).item() for x, source, target, _ in cases]
expected = [float(e) for *_, e in cases]
print(f"expected {expected}, got {got}")
sys.exit(got != expected)
