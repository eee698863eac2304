"""R21: Neg flips the sign bit. On CPU:X86, which needs clang."""

import sys

from tinygrad import Tensor
from tinygrad.helpers import DEV
from tinygrad.uop.ops import Ops

DEV.value = sys.argv[1] if sys.argv[1:] else "CPU:X86"
expected, got = [-0.0, 0.0], Tensor([0.0, -0.0]).alu(Ops.NEG).tolist()
print(f"expected {expected}, got {got}")
sys.exit(str(got) != str(expected))
