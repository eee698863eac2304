"""The only door to llvmlite: IR text to object bytes, object bytes to an address.

`Tier.FAST` runs no IR passes and LLVM's fastest code generator, for fuzzing and single calls; `Tier.FULL` is the O2 pipeline, of
which code that has vectors already gets a part.
"""

from __future__ import annotations

import ctypes
import functools
import re
import threading
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum
from typing import Any

from llvmlite import binding as llvm
from llvmlite.binding.newpassmanagers import NewPassManager

from uops.backends.elf import undefined_symbols
from uops.spec.errors import CompileError, Crash


class Tier(Enum):
    """How much LLVM works on a kernel; the value is the code generator's level."""

    FAST = 0
    FULL = 2


#: Functions that LLVM calls where the machine lacks the instruction; glibc's are correctly rounded. With it, none is allowed.
LIBM = {"fma": ("fma", "fmaf"), "sse4.1": ("trunc", "truncf")}


@dataclass(frozen=True, slots=True)
class Host:
    """The machine that code is made for, as far as it decides what code is made."""

    triple: str
    cpu: str
    features: str
    llvm: str

    def has(self, feature: str) -> bool:
        return f"+{feature}" in self.features.split(",")

    @property
    def allowed_symbols(self) -> frozenset[str]:
        """What an object may refer to: nothing, on a machine with fused multiply-add and (x86) rounding instructions."""
        if not self.triple.startswith(("x86_64", "amd64")):
            return frozenset()
        return frozenset(name for feature, names in LIBM.items() if not self.has(feature) for name in names)


@functools.cache
def host() -> Host:
    """This machine without GFNI, which LLVM 22.1 makes wrong code with (FOUND L02): where negative bytes are shifted arithmetically
    by a 0 that only its code generator finds, their lower bits are turned."""
    _initialize()
    features = llvm.get_host_cpu_features().flatten().replace("+gfni", "-gfni")
    return Host(llvm.get_process_triple(), llvm.get_host_cpu_name(), features, ".".join(map(str, llvm.llvm_version_info)))


@functools.cache
def _initialize() -> None:
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()


@functools.cache
def _machine(target: Host, tier: Tier) -> Any:
    _initialize()
    return llvm.Target.from_triple(target.triple).create_target_machine(
        cpu=target.cpu, features=target.features, opt=tier.value, reloc="pic", codemodel="default"
    )


_lock = threading.Lock()


@functools.cache
def _layout(target: Host, tier: Tier) -> str:
    return str(_machine(target, tier).target_data)


def _module(source: str, target: Host, tier: Tier) -> Any:
    """Parse, verify and optimize."""
    machine = _machine(target, tier)
    try:
        module = llvm.parse_assembly(source, llvm.create_context())
        module.triple = target.triple
        module.data_layout = _layout(target, tier)
        module.verify()
    except RuntimeError as e:
        raise Crash(f"LLVM rejects the rendered kernel: {e}\n{source}") from e
    if tier is Tier.FAST:
        narrow = _narrowing(source)
        return _without_known_masks(_combined(module, machine, narrow)) if narrow else module
    _optimize(module, machine, tier, _VECTOR.search(source) is not None)
    return _without_known_masks(module)


#: A vector type.
_VECTOR = re.compile(r"<\d+ x ")


def _optimize(module: Any, machine: Any, tier: Tier, has_vectors: bool) -> None:
    """All passes for scalar code, which they turn into vectors. Code that has vectors was scheduled and is in SSA form: what O2
    could add to it costs more than the code generator, and made no measured kernel faster."""
    options = llvm.create_pipeline_tuning_options(speed_level=tier.value)
    options.loop_vectorization = options.slp_vectorization = True
    builder = llvm.create_pass_builder(machine, options)
    with _free_after_use(llvm.create_new_module_pass_manager() if has_vectors else builder.getModulePassManager()) as passes:
        if has_vectors:
            passes.add_instruction_combine_pass()
            passes.add_simplify_cfg_pass()
        passes.run(module, builder)


@contextmanager
def _free_after_use(passes: Any) -> Iterator[Any]:
    """A pass manager, which is freed: llvmlite 0.50 does not free it, as the `_dispose` that its class finds first is that of
    ObjectRef, and the pipeline of a kernel is 52 KB. The PassBuilder keeps 1.5 KB, which nobody can free; one for several kernels
    would call what the runs before have registered."""
    try:
        yield passes
    finally:
        NewPassManager._dispose(passes)
        passes.detach()


def _narrowing(source: str) -> list[str]:
    """The functions that truncate vectors and store some lanes of such."""
    if ".masked.store." not in source:
        return []
    return [_DEFINED.findall(text)[-1] for text in source.split("\n}\n") if _TRUNCATED.search(text)]


_TRUNCATED = re.compile(r" trunc <\d+ x i\d+> [\s\S]*@llvm\.masked\.store\.v\d+i(8|16|32)\b")


def _combined(module: Any, machine: Any, names: Iterable[str]) -> Any:
    """Masks of constants as constants, which the code generator would find without this, in functions of these names."""
    builder = llvm.create_pass_builder(machine, llvm.create_pipeline_tuning_options(speed_level=0))
    with _free_after_use(llvm.create_new_function_pass_manager()) as passes:
        passes.add_instruction_combine_pass()
        for name in names:
            passes.run(module.get_function(name), builder)
    return module


def _without_known_masks(module: Any) -> Any:
    """Stores of lanes that are known instead of masked ones. Where one lane of truncated integers is stored under a mask, LLVM 22.1
    stores the wide integer on x86: `masked.store(trunc <8 x i32> to <8 x i8>)` of lane 0 writes four bytes."""
    if not any(_NARROW.match(f.name) for f in module.functions):
        return module
    text = str(module)
    known = _KNOWN_MASK.sub(_lanes_stored, text)
    return module if known == text else llvm.parse_assembly(known, llvm.create_context())


_NARROW = re.compile(r"llvm\.masked\.store\.v\d+i(8|16|32)\b")
_KNOWN_MASK = re.compile(
    r"^ *(?:tail )?call void @llvm\.masked\.store\.v(\d+)i(8|16|32)\.p0\(<\d+ x i\d+> (.+), ptr (?:align \d+ )?(\S+), "
    r"(?:i32 \d+, )?<\d+ x i1> <([^>]+)>\).*$",
    re.MULTILINE,
)


def _lanes_stored(found: re.Match[str]) -> str:
    """The lanes of a mask in runs, each in vectors of as many as a power of two."""
    width, bits, value, place, mask = found.groups()
    lanes = [k for k, lane in enumerate(mask.split(", ")) if lane == "i1 true"]
    name, lines = f"%known.{found.start()}", []
    while lanes:
        run = next((n for n in range(1, len(lanes)) if lanes[n] != lanes[0] + n), len(lanes))
        first, n = lanes[0], 1 << (run.bit_length() - 1)
        chosen = ", ".join(f"i32 {k}" for k in lanes[:n])
        part, at = f"{name}.{first}", f"{name}.{first}.at"
        lines += [
            f"  {part} = shufflevector <{width} x i{bits}> {value}, <{width} x i{bits}> poison, <{n} x i32> <{chosen}>",
            f"  {at} = getelementptr i{bits}, ptr {place}, i64 {first}",
            f"  store <{n} x i{bits}> {part}, ptr {at}, align {int(bits) // 8}",
        ]
        lanes = lanes[n:]
    return "\n".join(lines)


def compile_object(source: str, target: Host, tier: Tier, allowed: Collection[str] = ()) -> bytes:
    """Object code for `source`, which may refer to `allowed`. Raises CompileError if it would need any other function that this
    project does not allow."""
    with _lock:
        image = bytes(_machine(target, tier).emit_object(_module(source, target, tier)))
    check_symbols(image, target, allowed)
    return image


def compile_together(sources: Iterable[str], target: Host) -> bytes:
    """One object of the fast tier for several texts, each as `compile_object` has it, but that a function of text k is called by
    its name and k. LLVM sets up for every module and object anew, which takes as long as a small kernel does."""
    return compile_object(_joined(sources), target, Tier.FAST)


def _joined(sources: Iterable[str]) -> str:
    """The texts as one module; what they declare alike is there once, metadata have numbers of their own."""
    texts, shared, count = [], dict[str, None](), 0
    for k, source in enumerate(sources):
        shared.update(dict.fromkeys(_SHARED.findall(source)))
        text = _SHARED.sub("", source)
        for name in _DEFINED.findall(text):
            text = text.replace(f"@{name}(", f"@{name}{k}(")
        texts.append(_renumbered(text, count))
        count += len(_METADATA.findall(text))
    return "".join([*texts, *shared])


def _renumbered(text: str, first: int) -> str:
    return _METADATA.sub(lambda found: f"!{first + int(found[1])}", text)


_SHARED = re.compile(r"^(?:declare|attributes) .*\n", re.MULTILINE)
_DEFINED = re.compile(r"^define \S+ @(\w+)\(", re.MULTILINE)
_METADATA = re.compile(r"!(\d+)")


def check_symbols(image: bytes, target: Host, allowed: Collection[str] = ()) -> None:
    """Raise CompileError where an object refers to something else than `allowed`; a kernel's is freestanding."""
    if image[:4] == b"\x7fELF":
        known = {*allowed, *target.allowed_symbols, "_GLOBAL_OFFSET_TABLE_"}
        foreign = [name for name in undefined_symbols(image) if name not in known]
        if foreign:
            raise CompileError(f"the compiled kernel calls {', '.join(foreign)}, which a freestanding object may not")


def optimized(source: str, target: Host, tier: Tier) -> str:
    """The IR that the code generator gets."""
    with _lock:
        return str(_module(source, target, tier))


def assembly(source: str, target: Host, tier: Tier) -> str:
    """Assembly text, for people and tests."""
    with _lock:
        return str(_machine(target, tier).emit_assembly(_module(source, target, tier)))


@dataclass(frozen=True, slots=True)
class Loaded:
    """Linked code: valid as long as this object lives. `addresses`: of the symbols asked for, in order. `tracker` frees the code,
    and keeps its session."""

    addresses: tuple[int, ...]
    tracker: Any

    @property
    def address(self) -> int:
        return self.addresses[0]


#: Objects of a session. LLVM keeps about 10 KB of each, also of those that were freed, until nothing of the session is used:
#: so much memory, times this, a program that lives can keep of others. Making sessions costs 25 us an object where this is 16.
SESSION = 16


class _Sessions:
    """The session that new objects are linked in; those before live as long as code of theirs."""

    def __init__(self) -> None:
        self.current: Any = None
        self.linked = 0

    def next_name(self) -> str:
        """The name of an object, after which `current` has room for it."""
        if self.current is None or self.linked == SESSION:
            _initialize()
            self.current, self.linked = llvm.create_lljit_compiler(_machine(host(), Tier.FAST)), 0
        self.linked += 1
        return f"uops{self.linked}"


_sessions = _Sessions()


def load_object(image: bytes, *symbols: str) -> Loaded:
    """Link an object into this process, for these symbols of it. Raises Crash if LLVM cannot."""
    with _lock:
        library = llvm.JITLibraryBuilder().add_object_img(image).add_current_process()
        for symbol in symbols:
            library.export_symbol(symbol)
        try:
            name = _sessions.next_name()
            tracker = library.link(_sessions.current, name)
        except RuntimeError as e:
            raise Crash(f"LLVM cannot link an object: {e}") from e
        tracker.session = _sessions.current  # which goes after the code
        return Loaded(tuple(int(tracker[symbol]) for symbol in symbols), tracker)


def keep(loaded: Loaded) -> None:
    """Let linked code live as long as the process: threads may run it while Python goes."""
    for owner in (loaded.tracker, loaded.tracker.session):
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(owner))
