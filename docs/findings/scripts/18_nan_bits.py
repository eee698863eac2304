"""R28: movement and Where keep every bit: a signalling NaN stays one, and a NaN keeps its sign."""

import struct
import sys

from tinygrad import Tensor, dtypes
from tinygrad.helpers import DEV

DEV.value = sys.argv[1] if sys.argv[1:] else "PYTHON"
signalling = Tensor(struct.pack("2I", 0x7F800001, 0xFF800002), dtype=dtypes.float32).flip(0).contiguous().realize()
negative = Tensor(b"\xff\x7f", dtype=dtypes.fp8e4m3).flip(0).contiguous().realize()
chosen = Tensor([True]).where(Tensor(b"\x01\x7c", dtype=dtypes.float16), Tensor([1.0], dtype=dtypes.float16)).realize()
expected = ["0xff800002", "0x7f800001", "0x7f", "0xff", "0x7c01"]
stored = signalling.bitcast(dtypes.uint32), negative.bitcast(dtypes.uint8), chosen.bitcast(dtypes.uint16)
got = [hex(v) for t in stored for v in t.tolist()]
print(f"expected {expected}, got {got}")
sys.exit(str(got) != str(expected))
