"""R190: a remainder is exact. In vectors, PyTorch's fmod and remainder give NaN where the quotient overflows."""

import math
import sys

import torch

x, y = -1.1886411e35, 8.8316385e-09
got = {}
for count in (1, 16):
    a, b = torch.full((count,), x), torch.full((count,), y)
    got[count] = (torch.fmod(a, b)[0].item(), torch.remainder(a, b)[0].item())
print(f"expected {got[1]} twice, got {got}")
sys.exit(any(map(math.isnan, got[16])) and not any(map(math.isnan, got[1])))
