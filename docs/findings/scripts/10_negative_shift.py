"""R06: a count is read as unsigned, so -1 is at least the width: Shl gives 0, Shr the sign fill."""

import sys

from tinygrad import Tensor, dtypes
from tinygrad.helpers import DEV

DEV.value = sys.argv[1] if sys.argv[1:] else "PYTHON"


def run(a: Tensor) -> object:
    try:
        return a.item()
    except ValueError as e:
        return f"ValueError: {e}"


x, count = Tensor([-5], dtype=dtypes.int32), Tensor([-1], dtype=dtypes.int32)
expected, got = [0, -1], [run(x << count), run(x >> count)]
print(f"expected {expected}, got {got}")
sys.exit(str(got) != str(expected))
