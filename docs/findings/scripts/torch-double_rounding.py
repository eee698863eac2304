"""R15: a conversion rounds once. PyTorch rounds to float32 first; NumPy rounds float64 to float16 once."""

import sys

import numpy as np
import torch

half = 1 + 2**-11 + 2**-30
got = [
    torch.tensor(half, dtype=torch.float64).half().item(),
    torch.tensor(1 + 2**-8 + 2**-30, dtype=torch.float64).bfloat16().item(),
    torch.tensor(1 + 2**-3 + 2**-30, dtype=torch.float64).to(torch.float8_e5m2).float().item(),
    torch.tensor(0x40400001).bfloat16().item(),
]
expected = [1 + 2**-10, 1 + 2**-7, 1.25, float(0x40800000)]
print(f"expected {expected}, got {got}; NumPy's float16 gives {float(np.float64(half).astype(np.float16))}")
sys.exit(got != expected)
