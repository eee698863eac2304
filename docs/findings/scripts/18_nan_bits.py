"""R28: a movement keeps every bit; a signalling NaN keeps its payload and a NaN its sign."""

import struct
import sys

from tinygrad import Tensor, dtypes
from tinygrad.helpers import DEV

DEV.value = sys.argv[1] if sys.argv[1:] else "PYTHON"
signalling = Tensor(struct.pack("2I", 0x7F800001, 0xFF800002), dtype=dtypes.float32).flip(0).contiguous().realize()
negative = Tensor(b"\xff\x7f", dtype=dtypes.fp8e4m3).flip(0).contiguous().realize()
expected = ["0xff800002", "0x7f800001", "0x7f", "0xff"]
got = [hex(v) for v in signalling.bitcast(dtypes.uint32).tolist() + negative.bitcast(dtypes.uint8).tolist()]
print(f"expected {expected}, got {got}")
sys.exit(str(got) != str(expected))
