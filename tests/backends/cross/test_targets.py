"""Cross targets: their memory, their code, and what they say when something is missing or wrong."""

from __future__ import annotations

import shutil
import struct
import weakref
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from uops.backends.cache import ObjectCache
from uops.backends.cross import code, codegen, engines
from uops.backends.cross import target as target_module
from uops.backends.cross.arguments import ArrayArgument, describe_array_arguments
from uops.backends.cross.backend import Aarch64Backend
from uops.backends.cross.processors import PROCESSORS
from uops.backends.cross.target import CrossKernel, CrossTarget, compile_support_functions
from uops.backends.elf import ElfFile
from uops.backends.link import link_object
from uops.backends.llvm.binding import LlvmTier
from uops.compiler.target import load_or_remake_kernel
from uops.spec.errors import Crash, Unsupported
from uops.spec.ir import build as B
from uops.spec.ir import dtypes as dt

NATIVE = [name for name, p in PROCESSORS.items() if p.qemu]


def open_target(name: str, engine: str | None = None) -> CrossTarget:
    """The target; the test is skipped if no engine is installed."""
    try:
        return CrossTarget(PROCESSORS[name], LlvmTier.FAST, engine, ObjectCache(None))
    except Unsupported as e:
        pytest.skip(str(e))


def load(target: CrossTarget, kernels, n: int = 4) -> CrossKernel:
    """p0[i] = p1[i] + 1 for int32."""
    graph = kernels.elementwise(n, dt.int32, (dt.int32,), lambda v: B.add(v, B.const(1)))
    return target.load(target.compile(target.render(graph)))


def call(target: CrossTarget, kernel: CrossKernel, *arrays: np.ndarray) -> None:
    with target.lend(arrays):
        kernel([a.ctypes.data for a in arrays], [0] * len(arrays))


def test_the_first_line_of_a_text_lists_arrays_with_sizes_and_writes(kernels) -> None:
    graph = kernels.elementwise(6, dt.int16, (dt.float64,), lambda v: B.cast(v, dt.int16))
    kinds = describe_array_arguments(graph)
    assert kinds == [ArrayArgument(0, 2, 12, True), ArrayArgument(1, 8, 48, False)]
    assert [ArrayArgument.parse(str(k)) for k in kinds] == kinds


@pytest.mark.parametrize("name", ["aarch64", "s390x", "wasm"])
def test_only_lent_memory_is_touched_and_what_is_read_stays(kernels, name: str) -> None:
    target = open_target(name)
    x, guarded = np.arange(8, dtype=np.int32), np.full(12, -7, np.int32)
    call(target, load(target, kernels, 8), guarded[2:10], x)
    assert guarded.tolist() == [-7, -7, *range(1, 9), -7, -7] and x.tolist() == list(range(8))
    with pytest.raises(Crash, match="writes behind the end"):
        call(target, load(target, kernels, 1000), guarded[2:10], x)  # the array is shorter than the kernel's
    assert guarded.tolist() == [-7, -7, *range(1, 9), -7, -7]


@pytest.mark.parametrize("name", ["aarch64", "s390x", "wasm"])
def test_a_kernel_that_writes_behind_an_argument_is_a_crash(kernels, name: str) -> None:
    target = open_target(name)
    text = target.render(kernels.elementwise(4, dt.int32, (dt.int32,), lambda v: B.add(v, B.const(1))))
    assert text.count(" 0:4:16:w ") == 1
    kernel, x = target.load(target.compile(text.replace(" 0:4:16:w ", " 0:4:12:w "))), np.arange(4, dtype=np.int32)
    with pytest.raises(Crash, match=f"{name}: a kernel writes behind the end of an argument"):
        call(target, kernel, np.zeros(4, np.int32), x)


@pytest.mark.parametrize("name", ["aarch64", "s390x", "i686", "wasm"])
def test_arguments_that_overlap_are_one_memory(kernels, name: str) -> None:
    target = open_target(name)
    memory = np.array([0, 9, 9, 9, 9], np.int32)
    call(target, load(target, kernels), memory[1:], memory[:4])
    assert memory.tolist() == [0, 1, 2, 3, 4], "each element is read after the one before was written"


def test_arguments_of_two_sizes_that_overlap_are_refused_where_they_cannot_be_one_memory(kernels) -> None:
    target, little = open_target("s390x"), open_target("aarch64")
    graph = kernels.elementwise(4, dt.int32, (dt.int8,), lambda v: B.cast(v, dt.int32))
    memory = np.zeros(4, np.int32)
    with pytest.raises(Unsupported, match="memory that one kernel writes, with elements of 1 and of 4 bytes"):
        call(target, target.load(target.compile(target.render(graph))), memory, memory.view(np.int8)[:4])
    call(little, little.load(little.compile(little.render(graph))), memory, memory.view(np.int8)[:4])


@pytest.mark.parametrize("name", ["aarch64", "s390x"])
def test_arguments_of_two_sizes_that_are_only_read_may_overlap(kernels, name: str) -> None:
    target = open_target(name)
    graph = kernels.elementwise(4, dt.int32, (dt.int32, dt.int8), lambda v, w: B.add(v, B.cast(w, dt.int32)))
    x, out = np.arange(4, dtype=np.int32) * 0x01020304, np.zeros(4, np.int32)
    call(target, target.load(target.compile(target.render(graph))), out, x, x.view(np.int8)[4:8])
    assert out.tolist() == (x + x.view(np.int8)[4:8]).tolist()


@pytest.mark.parametrize("name", ["aarch64", "riscv64", "s390x", "i686"])
def test_a_fault_is_a_crash_and_the_next_call_runs(kernels, name: str) -> None:
    target = open_target(name, "qemu")
    kernel, x, out = load(target, kernels), np.arange(4, dtype=np.int32), np.zeros(4, np.int32)
    with target.lock, pytest.raises(Crash, match=rf"a kernel ended {PROCESSORS[name].qemu[0]}: status -?\d+"):
        target.engine.call(kernel.find_function(), 16, 16)  # tables at an address without memory
    call(target, kernel, out, x)
    assert out.tolist() == [1, 2, 3, 4]
    target.engine.close()


@pytest.mark.parametrize("name", ["aarch64:unicorn", "wasm"])
def test_a_fault_of_an_engine_in_this_process_is_a_crash(kernels, name: str) -> None:
    processor, _, engine = name.partition(":")
    target = open_target(processor, engine or None)
    kernel, x, out = load(target, kernels), np.arange(4, dtype=np.int32), np.zeros(4, np.int32)
    with target.lock, pytest.raises(Crash, match=r"a kernel (faults|traps) in"):
        target.engine.call(kernel.find_function(), target.engine.data.stop - 8, target.engine.data.stop - 8)
    call(target, kernel, out, x)
    assert out.tolist() == [1, 2, 3, 4]


@pytest.mark.parametrize("name", ["aarch64", "s390x", "aarch64:unicorn"])
def test_kernels_run_on_after_the_memory_for_code_was_full(kernels, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    processor, _, engine = name.partition(":")
    target = open_target(processor, engine or None)
    monkeypatch.setattr(code, "CODE_SIZE", 6 << 10)
    loaded = [load(target, kernels, n) for n in range(1, 30)]
    assert target.engine.code.generation > 0
    for n, kernel in enumerate(loaded, 1):
        x, out = np.arange(n, dtype=np.int32), np.zeros(n, np.int32)
        call(target, kernel, out, x)
        assert out.tolist() == list(range(1, n + 1))


def test_wasm_forgets_modules_when_there_are_many(kernels, monkeypatch: pytest.MonkeyPatch) -> None:
    from uops.backends.cross import wasmtime

    target = open_target("wasm")
    monkeypatch.setattr(wasmtime, "_MOST_FUNCTIONS", 5)
    loaded = [load(target, kernels, n) for n in range(1, 12)]
    assert target.engine.code.generation > 1
    x, out = np.arange(1, dtype=np.int32), np.zeros(1, np.int32)
    call(target, loaded[0], out, x)
    assert out.tolist() == [1]


@pytest.mark.parametrize("name", ["aarch64", "wasm"])
def test_support_functions_that_could_not_be_made_are_made_with_the_next_kernel(
    kernels, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:  # fmt: skip
    target = open_target(name)
    graph = kernels.elementwise(4, dt.float32, (dt.float32,), lambda v: B.mulacc(v, v, v))
    binary = target.compile(target.render(graph))

    def raise_crash(processor_name: str) -> bytes:
        raise Crash(f"LLVM ended while it compiled for {processor_name}")

    with monkeypatch.context() as broken:
        broken.setattr(target_module, "compile_support_functions", raise_crash)
        with pytest.raises(Crash, match="LLVM ended"):
            target.load(binary)
    x, out = np.arange(4, dtype=np.float32), np.zeros(4, np.float32)
    call(target, target.load(binary), out, x)
    assert out.tolist() == [0, 2, 6, 12]


def test_arguments_beyond_the_memory_of_an_engine_are_refused_by_size(kernels, monkeypatch: pytest.MonkeyPatch) -> None:
    target = open_target("aarch64")
    kernel, x = load(target, kernels, 4000), np.zeros(4000, np.int32)
    monkeypatch.setattr(target.engine, "data", range(target.engine.data.start, target.engine.data.start + 1000))
    with pytest.raises(Crash, match=r"the arguments of a kernel take 32,\d\d\d bytes; the memory of qemu has 1,000"):
        call(target, kernel, x.copy(), x)


@pytest.mark.parametrize("name", NATIVE)
def test_an_object_is_linked_as_its_processor_says(name: str) -> None:
    """The functions call each other, so a wrong distance faults in the claims; here, what an object lacks is named."""
    image = compile_support_functions(name)
    linked = link_object(image, 0x5000_0000, {})
    addresses = [linked.symbols[name] for name in ("__divdi3", "fma", "fmaf")]
    assert sorted(addresses) == addresses and 0x5000_0000 < addresses[0] < 0x5000_0000 + len(linked.data)
    needs = "declare void @elsewhere()\ndefine void @f() nounwind {\n  call void @elsewhere()\n  ret void\n}\n"
    with pytest.raises(Crash, match="calls elsewhere, which a freestanding object may not"):
        codegen.GENERATOR.compile_object(name, "FAST", needs)


def test_an_unknown_relocation_and_a_symbol_without_address_are_refused() -> None:
    program = "declare i64 @syscall(i64)\ndefine i64 @f() nounwind {\n  %x = call i64 @syscall(i64 1)\n  ret i64 %x\n}\n"
    image = bytearray(codegen.GENERATOR.compile_object("aarch64", "FAST", program))
    with pytest.raises(Crash, match="syscall has no address"):
        link_object(bytes(image), 0, {})
    with pytest.raises(Crash, match=r"a distance of \d+ needs more than 26 bits"):
        link_object(bytes(image), 0, {"syscall": 1 << 40})
    table = next(s for s in ElfFile(bytes(image)).sections if s.kind == 4)
    (info,) = struct.unpack_from("<Q", image, table.start + 8)
    struct.pack_into("<Q", image, table.start + 8, info & ~0xFFFFFFFF | 999)
    with pytest.raises(Crash, match="relocation 999 of ELF machine 183 is unknown"):
        link_object(bytes(image), 0, {"syscall": 64})


def test_text_that_llvm_rejects_or_dies_of_is_a_crash_and_the_next_text_compiles() -> None:
    generator = codegen.CodeGenerator()
    with pytest.raises(Crash, match="LLVM rejects the rendered kernel"):
        generator.compile_object("aarch64", "FAST", "define nonsense")
    assert generator.compile_object("aarch64", "FAST", "define void @f() {\n  ret void\n}\n")[:4] == b"\x7fELF"
    generator._child._process.kill()  # type: ignore[union-attr]
    generator._child._process.wait()  # type: ignore[union-attr]
    with pytest.raises(Crash, match="LLVM ended while it compiled for s390x: status -9"):
        generator.compile_object("s390x", "FAST", "define void @f() {\n  ret void\n}\n")
    assert generator.compile_object("s390x", "FAST", "define void @f() {\n  ret void\n}\n")[:4] == b"\x7fELF"


def test_a_missing_engine_is_named_with_the_way_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda name: None)
    monkeypatch.setattr(engines, "is_unicorn_installed", lambda: False)
    with pytest.raises(Unsupported, match=r"qemu-aarch64 \(Debian's package qemu-user\) or the package unicorn \(pip install"):
        Aarch64Backend()
    with pytest.raises(ValueError, match="no engine of aarch64 is called 'bochs'; known: qemu, unicorn"):
        Aarch64Backend(engine="bochs")
    with pytest.raises(ValueError, match="no tier is called 'slow'; known: fast, full"):
        Aarch64Backend(tier="slow")


@pytest.mark.parametrize("name", ["s390x", "wasm", "aarch64:sve"])
def test_kernels_that_are_compiled_together_run_as_those_of_one_object(kernels, name: str) -> None:
    target = open_target(name)
    graphs = [kernels.elementwise(4, dt.int32, (dt.int32,), lambda v, k=k: B.mul(v, B.const(k))) for k in range(5)]
    x = np.arange(4, dtype=np.int32)
    for k, kernel in enumerate(target.compile_and_load_batch([target.render(g) for g in graphs])):
        out = np.zeros(4, np.int32)
        call(target, kernel, out, x)
        assert out.tolist() == (x * k).tolist()


@pytest.mark.parametrize("name", ["aarch64", "i686", "wasm"])
def test_a_cached_object_that_does_not_link_is_made_anew(kernels, name: str, tmp_path: Path) -> None:
    open_target(name)
    target = CrossTarget(PROCESSORS[name], LlvmTier.FULL, store=ObjectCache(tmp_path))
    source = target.render(kernels.elementwise(4, dt.int32, (dt.int32,), lambda v: B.add(v, B.const(1))))
    good = target.compile(source)
    target.store.remake(lambda: good.split(b"\n", 1)[1][:200], target.key, source)
    damaged = target.compile(source)
    with pytest.raises(Crash):
        target.load(damaged)
    x, out = np.arange(4, dtype=np.int32), np.zeros(4, np.int32)
    call(target, load_or_remake_kernel(target, source, damaged), out, x)
    assert out.tolist() == [1, 2, 3, 4] and target.compile(source) == good


@pytest.mark.parametrize("name", ["aarch64", "s390x"])
def test_a_fork_has_memory_and_a_program_of_its_own(
    kernels, name: str, status_in_fork: Callable[[Callable[[], object]], int]
) -> None:
    """Else it and its parent write into one memory, and ask one program."""
    target = open_target(name, "qemu")
    loaded, kept = {n: load(target, kernels, n) for n in (3, 4)}, bytearray(4)

    def run(n: int) -> None:
        x, out = np.arange(n, dtype=np.int32), np.zeros(n, np.int32)
        call(target, loaded[n], out, x)
        assert out.tolist() == list(range(1, n + 1))

    def run_and_load_in_fork() -> None:
        run(4)
        loaded[5] = load(target, kernels, 5)
        run(5)
        assert target.engine._program._process is not program  # type: ignore[attr-defined]
        target.engine.write(target.engine.data.start, b"fork")
        target.engine.close()

    run(3)
    program = target.engine._program._process  # type: ignore[attr-defined]
    target.engine.write(target.engine.data.start, b"here")
    assert status_in_fork(run_and_load_in_fork) == 0
    target.engine.read_into(target.engine.data.start, memoryview(kept))
    assert kept == b"here"
    loaded[6] = load(target, kernels, 6)
    for n in (3, 4, 6):
        run(n)
    assert target.engine._program._process is program  # type: ignore[attr-defined]
    target.engine.close()


@pytest.mark.parametrize("tier", list(LlvmTier))
def test_no_kernels_are_compiled_together_to_none(tier: LlvmTier) -> None:
    open_target("aarch64")
    assert CrossTarget(PROCESSORS["aarch64"], tier, store=ObjectCache(None)).compile_and_load_batch([]) == []


def test_an_engine_in_this_process_frees_its_memory_when_it_is_closed(kernels) -> None:
    target = open_target("aarch64", "unicorn")
    load(target, kernels)
    emulator = weakref.ref(target.engine._engine)  # type: ignore[attr-defined]
    target.engine.close()
    assert emulator() is None
