"""Linking objects into this process."""

from __future__ import annotations

import subprocess
import sys

import pytest

#: Links a kernel with a table where no hole in the addresses is large enough for its code within 2 GB of one for its table.
_LINK_WHERE_HOLES_ARE_FAR_APART = """
import ctypes, mmap
from uops.backends.llvm import binding

stores = "".join(f"  store volatile i32 {k}, ptr %p\\n" for k in range(12000))  # more code than holes have
source = f'''@table = internal constant [4 x float] [float 0.0, float 1.0, float 2.0, float 3.0]
define void @k(ptr %p, i64 %i) {{
{stores}  %a = getelementptr float, ptr @table, i64 %i
  %v = load float, ptr %a
  store float %v, ptr %p
  ret void
}}
'''
image = binding.compile_object(source, binding.detect_host_without_gfni(), binding.LlvmTier.FAST)
first = binding.load_object(image, "k")  # what LLVM allocates once is allocated
libc = ctypes.CDLL(None)
libc.mmap.restype, libc.mmap.argtypes = ctypes.c_void_p, [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
reserve = lambda size: libc.mmap(None, size, 0, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | 0x4000, -1, 0)
far = reserve(8 << 30)
while reserve(32 << 10) > far:
    pass
linked = binding.load_object(image, "k")
result = ctypes.c_float()
ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64)(linked.address)(ctypes.addressof(result), 3)
print(linked.address < far, result.value)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="reserves addresses as Linux does")
def test_a_kernel_and_its_table_are_linked_near_each_other() -> None:
    command = [sys.executable, "-c", _LINK_WHERE_HOLES_ARE_FAR_APART]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    assert (done.returncode, done.stdout.split()) == (0, ["True", "3.0"]), done.stderr
