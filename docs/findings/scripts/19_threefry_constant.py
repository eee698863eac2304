"""R22: Threefry of constants is Threefry of the same values at run time."""

import sys

from tinygrad import Tensor, dtypes
from tinygrad.helpers import DEV
from tinygrad.uop.ops import Ops, UOp

DEV.value = sys.argv[1] if sys.argv[1:] else "PYTHON"
counter, key = 5, 3
run = Tensor([counter], dtype=dtypes.uint64).uop.alu(Ops.THREEFRY, Tensor([key], dtype=dtypes.uint64).uop)
folded = UOp.const(counter, dtypes.uint64).alu(Ops.THREEFRY, UOp.const(key, dtypes.uint64))
expected = hex(Tensor(run).item())
got = hex(Tensor.empty(1, dtype=dtypes.uint64).assign(Tensor(folded.reshape((1,)))).item())
print(f"expected {expected}, got {got}")
sys.exit(str(got) != str(expected))
