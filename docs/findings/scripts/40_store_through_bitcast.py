"""R46, R51: a Bitcast of memory is a reference, and so are the views of it: what is stored into them is stored there."""

import sys
from collections.abc import Callable

from tinygrad import Tensor, dtypes
from tinygrad.helpers import DEV

DEV.value = sys.argv[1] if sys.argv[1:] else "PYTHON"


def stored(view: Callable[[Tensor], Tensor], values: list[float]) -> object:
    """Four integers whose memory is read as float32, after the values were stored into a view of that."""
    b = Tensor([0, 0, 0, 0], dtype=dtypes.int32).contiguous().realize()
    try:
        view(b.bitcast(dtypes.float32)).assign(Tensor(values).realize()).realize()
        return b.bitcast(dtypes.float32).tolist()
    except RuntimeError as e:
        return f"RuntimeError: {str(e)[:40]}..."


expected = [1.0, 2.0, 3.0, 4.0], [0.0, 1.0, 2.0, 0.0], [4.0, 3.0, 2.0, 1.0]
got = (
    stored(lambda t: t, [1.0, 2.0, 3.0, 4.0]),
    stored(lambda t: t[1:3], [1.0, 2.0]),
    stored(lambda t: t.flip(0), [1.0, 2.0, 3.0, 4.0]),
)
print(f"expected {expected}, got {got}")
sys.exit(str(got) != str(expected))
