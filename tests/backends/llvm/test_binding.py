"""Linking objects into this process."""

from __future__ import annotations

import ctypes
import gc
import mmap
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from uops.backends.llvm import binding
from uops.backends.llvm.executable import CodeBlock, is_self_contained
from uops.spec.errors import Crash

#: Links a kernel with a table where no hole in the addresses is large enough for its code within 2 GB of one for its table.
_LINK_WHERE_HOLES_ARE_FAR_APART = """
import ctypes, mmap, sys
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
first = binding.link_by_llvm(image, "k")  # what LLVM allocates once is allocated
libc = ctypes.CDLL(None)
libc.mmap.restype, libc.mmap.argtypes = ctypes.c_void_p, [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
reserve = lambda size: libc.mmap(None, size, 0, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | 0x4000, -1, 0)
far = reserve(8 << 30)
while reserve(32 << 10) > far:
    pass
linked = getattr(binding, sys.argv[1])(image, "k")
result = ctypes.c_float()
ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64)(linked.address)(ctypes.addressof(result), 3)
print(linked.address < far, result.value)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="reserves addresses as Linux does")
@pytest.mark.parametrize("link", ["load_object", "link_by_llvm"])
def test_a_kernel_and_its_table_are_linked_near_each_other(link: str) -> None:
    command = [sys.executable, "-c", _LINK_WHERE_HOLES_ARE_FAR_APART, link]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    assert (done.returncode, done.stdout.split()) == (0, ["True", "3.0"]), done.stderr


_TABLES = """@table = internal constant [2 x float] [float 2.0, float 3.0]
@rows = internal constant [2 x ptr] [ptr @table, ptr getelementptr (float, ptr @table, i64 1)]
define void @k(ptr %p, i64 %i) noinline {
  %a = getelementptr ptr, ptr @rows, i64 %i
  %row = load ptr, ptr %a
  %v = load float, ptr %row
  store float %v, ptr %p
  ret void
}
define void @both(ptr %p) {
  %q = getelementptr float, ptr %p, i64 1
  call void @k(ptr %p, i64 1)
  call void @k(ptr %q, i64 0)
  ret void
}
"""


def _compile(text: str) -> bytes:
    return binding.compile_object(text, binding.detect_host_without_gfni(), binding.LlvmTier.FAST)


@pytest.mark.parametrize("link", [binding.load_object, binding.link_by_llvm])
def test_functions_and_addresses_in_tables_are_linked(link: Callable[..., binding.LinkedObject]) -> None:
    linked = link(_compile(_TABLES), "both", "k")
    gc.collect()
    out = (ctypes.c_float * 2)()
    ctypes.CFUNCTYPE(None, ctypes.c_void_p)(linked.address)(ctypes.addressof(out))
    assert list(out) == [3.0, 2.0] and len(set(linked.addresses)) == 2


def test_an_object_with_a_table_of_addresses_of_its_own_is_left_to_llvm() -> None:
    """A function of an object that others could replace is found by way of a table, which is no part of the object."""
    image = _compile("define void @f() { ret void }\ndefine void @k(ptr %p) { store ptr @f, ptr %p ret void }\n")
    assert not is_self_contained(image)
    linked = binding.load_object(image, "k", "f")
    out = ctypes.c_void_p()
    ctypes.CFUNCTYPE(None, ctypes.c_void_p)(linked.address)(ctypes.addressof(out))
    assert out.value == linked.addresses[1]


def test_a_damaged_object_is_linked_or_is_a_crash() -> None:
    image = _compile(_TABLES)
    with pytest.raises(Crash, match="the object lacks other"):
        binding.load_object(image, "k", "other")
    crashes = 0
    for k in range(len(image)):
        damaged = image[:k] + bytes([image[k] ^ 0xFF]) + image[k + 1 :]
        try:
            if is_self_contained(damaged):
                CodeBlock(damaged)
        except Crash:
            crashes += 1
    assert crashes > 50


def test_code_cannot_be_written_and_is_unmapped_with_its_owner() -> None:
    linked = binding.load_object(_compile(_TABLES), "k")
    page = f"{linked.address & -mmap.PAGESIZE:x}-"
    (line,) = [m for m in Path("/proc/self/maps").read_text().splitlines() if m.startswith(page)]
    assert " r-xp " in line
    del linked
    assert not any(m.startswith(page) and " r-xp " in m for m in Path("/proc/self/maps").read_text().splitlines())
