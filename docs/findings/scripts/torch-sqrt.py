"""R16: Sqrt is correctly rounded, as IEEE 754 says. Eager PyTorch is not, in float32 and float64."""

import sys

import numpy as np
import torch

x = torch.arange(1, 100_001)
wrong = {d: int((torch.sqrt(x.to(d)).numpy() != np.sqrt(x.to(d).numpy())).sum()) for d in (torch.float32, torch.float64)}
below_one = torch.sqrt(torch.tensor(1 - 2**-24, dtype=torch.float32)).item()
print(f"expected 0 wrong roots of 100000 and a root below 1, got {wrong} and {below_one}")
sys.exit(any(wrong.values()))
