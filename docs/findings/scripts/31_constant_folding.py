"""R06, R16: an op of constants gives what the op gives: Trunc keeps the sign of zero, Div rounds once, -5 >> -1 is -1."""

import sys

from tinygrad import Tensor, dtypes
from tinygrad.helpers import DEV
from tinygrad.uop.ops import Ops, UOp

DEV.value = sys.argv[1] if sys.argv[1:] else "CPU:X86"


def run(make: object, dtype: object) -> object:
    try:
        return Tensor.empty(1, dtype=dtype).assign(Tensor(make().reshape((1,)))).item()
    except ValueError as e:
        return f"ValueError: {e}"


f, i = dtypes.float32, dtypes.int32
trunc = run(lambda: UOp.const(-0.5, f).alu(Ops.TRUNC), f)
quotient = run(lambda: UOp.const(-2.5, f).div(UOp.const(3.0, f)), f)
shifted = run(lambda: UOp.const(-5, i).alu(Ops.SHR, UOp.const(-1, i)), i)
expected, got = [-0.0, -0.8333333134651184, -1], [trunc, quotient, shifted]
print(f"expected {expected}, got {got}")
sys.exit(str(got) != str(expected))
