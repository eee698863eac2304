"""The only user of llvmlite: IR text to object bytes, object bytes to addresses.

Takes: IR text, a `Host` and a `LlvmTier`. Gives: object code, or a `LinkedObject` of this process. `LlvmTier.FAST` runs no IR
passes and LLVM's fastest code generator, for fuzzing and single calls. `LlvmTier.FULL` is the O2 pipeline; code that has vectors
already gets a part of it.
"""

from __future__ import annotations

import ctypes
import functools
import re
import threading
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any

from llvmlite import binding as llvm
from llvmlite.binding.newpassmanagers import NewPassManager

from uops.backends.elf import undefined_symbols
from uops.backends.llvm.executable import CodeBlock, is_self_contained
from uops.spec.errors import CompileError, Crash


class LlvmTier(Enum):
    """The optimisation that LLVM applies to a kernel; the value is the code generator's level."""

    FAST = 0
    FULL = 2

    @classmethod
    def parse(cls, text: str) -> LlvmTier:
        """Return a tier by its name, in lower case. Raises ValueError."""
        if text.upper() not in cls.__members__:
            raise ValueError(f"no tier is called {text!r}; known: {', '.join(t.name.lower() for t in cls)}")
        return cls[text.upper()]


#: CPU feature -> functions that LLVM calls on a machine without it; glibc's are correctly rounded.
LIBM = {"fma": ("fma", "fmaf"), "sse4.1": ("trunc", "truncf")}


@dataclass(frozen=True, slots=True)
class Host:
    """The machine that code is compiled for, as far as it decides the code."""

    triple: str
    cpu: str
    features: str
    llvm: str
    relocation_model: str = "pic"
    code_model: str = "default"
    vectorizes: bool = True  # LLVM may make vectors of scalar code

    def has(self, feature: str) -> bool:
        """Return True if the machine has a feature."""
        return f"+{feature}" in self.features.split(",")

    @property
    def libm_fallback_symbols(self) -> frozenset[str]:
        """The functions that an object may call: none on a machine with fused multiply-add and (x86) rounding instructions."""
        if not self.triple.startswith(("x86_64", "amd64")):
            return frozenset()
        return frozenset(name for feature, names in LIBM.items() if not self.has(feature) for name in names)


@functools.cache
def detect_host_without_gfni() -> Host:
    """Return this machine, without GFNI.

    LLVM 22.1 miscompiles for GFNI (FOUND L02). If negative bytes are shifted arithmetically by a 0 that only the code generator
    finds, their lower bits are reversed.
    """
    _initialize_llvm()
    features = llvm.get_host_cpu_features().flatten().replace("+gfni", "-gfni")
    return Host(llvm.get_process_triple(), llvm.get_host_cpu_name(), features, llvm_version())


def without_features(host: Host, prefix: str) -> Host:
    """Return a machine that lacks the features whose names begin with `prefix`."""
    features = [f"-{f[1:]}" if f[1:].startswith(prefix) else f for f in host.features.split(",")]
    return replace(host, features=",".join(features))


def llvm_version() -> str:
    """Return the version of LLVM."""
    return ".".join(map(str, llvm.llvm_version_info))


def initialize_all_processors() -> None:
    """Make LLVM ready to compile for other processors than this one."""
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()


@functools.cache
def _initialize_llvm() -> None:
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    llvm.initialize_native_asmparser()  # for assembly in native text


@functools.cache
def _create_target_machine(host: Host, tier: LlvmTier) -> Any:
    _initialize_llvm()
    return llvm.Target.from_triple(host.triple).create_target_machine(
        cpu=host.cpu, features=host.features, opt=tier.value, reloc=host.relocation_model, codemodel=host.code_model
    )


_lock = threading.Lock()


@functools.cache
def _data_layout(target: Host, tier: LlvmTier) -> str:
    return str(_create_target_machine(target, tier).target_data)


def _parse_and_run_tier_passes(source: str, host: Host, tier: LlvmTier) -> Any:
    """Parse, verify and optimize a module. Raises Crash if LLVM rejects it."""
    machine = _create_target_machine(host, tier)
    if tier is LlvmTier.FAST:
        source = _freeze_operands_of_float_selects(source)
    try:
        module = llvm.parse_assembly(source, llvm.create_context())
        module.triple = host.triple
        module.data_layout = _data_layout(host, tier)
        module.verify()
    except RuntimeError as e:
        raise Crash(f"LLVM rejects the rendered kernel: {e}\n{source}") from e
    if tier is LlvmTier.FAST:
        narrow = _list_functions_with_truncated_masked_stores(source)
        return _replace_constant_masked_stores(_run_instcombine_on_functions(module, machine, narrow)) if narrow else module
    _run_cleanup_if_vectors_else_tier_passes(module, machine, tier, _VECTOR.search(source) is not None, host.vectorizes)
    return _replace_constant_masked_stores(module)


def _freeze_operands_of_float_selects(source: str) -> str:
    """Return IR text in which selects of scalar floats take frozen operands, so that no Load becomes a part of an instruction.

    The fast code generator of x86 selects floats with an instruction of 16 bytes. It takes an operand from memory if a Load has
    no other use, and so reads up to 12 bytes behind it: a crash at the end of a page (LLVM 22.1.0, FOUND L04).
    """
    return _FLOAT_SELECT.sub(_FROZEN_SELECT, source)


#: Matches a select of scalar floats.
_FLOAT_SELECT = re.compile(
    r"^  (?P<name>%\S+) = select (?P<condition>i1 \S+), (?P<type>float|double) (?P<x>\S+), (?P=type) (?P<y>\S+)$", re.MULTILINE
)
_FROZEN_SELECT = r"""  \g<name>.x = freeze \g<type> \g<x>
  \g<name>.y = freeze \g<type> \g<y>
  \g<name> = select \g<condition>, \g<type> \g<name>.x, \g<type> \g<name>.y"""
#: Matches a vector type.
_VECTOR = re.compile(r"<\d+ x ")


def _run_cleanup_if_vectors_else_tier_passes(
    module: Any, machine: Any, tier: LlvmTier, has_vectors: bool, vectorizes: bool
) -> None:
    """Run the passes of a tier.

    Scalar code gets all passes, which vectorize it. Code with vectors is scheduled and in SSA form. What O2 could add to it
    costs more than the code generator, and made no measured kernel faster.
    """
    options = llvm.create_pipeline_tuning_options(speed_level=tier.value)
    options.loop_vectorization = options.slp_vectorization = vectorizes
    builder = llvm.create_pass_builder(machine, options)
    with _free_after_use(llvm.create_new_module_pass_manager() if has_vectors else builder.getModulePassManager()) as passes:
        if has_vectors:
            passes.add_instruction_combine_pass()
            passes.add_simplify_cfg_pass()
        passes.run(module, builder)


@contextmanager
def _free_after_use(pass_manager: Any) -> Iterator[Any]:
    """Yield a pass manager, and free it afterwards.

    llvmlite 0.50 does not free it, as the `_dispose` that its class finds first is that of ObjectRef. The pipeline of a kernel
    has 52 KB. The PassBuilder keeps 1.5 KB, which nothing frees. A shared one would call what earlier runs have registered.
    """
    try:
        yield pass_manager
    finally:
        NewPassManager._dispose(pass_manager)
        pass_manager.detach()


def _list_functions_with_truncated_masked_stores(source: str) -> list[str]:
    """Return the functions that truncate vectors and store some lanes of such."""
    if ".masked.store." not in source:
        return []
    return [_DEFINED.findall(text)[-1] for text in source.split("\n}\n") if _TRUNCATED.search(text)]


_TRUNCATED = re.compile(r" trunc <\d+ x i\d+> [\s\S]*@llvm\.masked\.store\.v\d+i(8|16|32)\b")


def _run_instcombine_on_functions(module: Any, machine: Any, function_names: Iterable[str]) -> Any:
    """Run instruction combining on functions of these names.

    It folds masks of constants, which the code generator would otherwise find by itself.
    """
    builder = llvm.create_pass_builder(machine, llvm.create_pipeline_tuning_options(speed_level=0))
    with _free_after_use(llvm.create_new_function_pass_manager()) as passes:
        passes.add_instruction_combine_pass()
        for name in function_names:
            passes.run(module.get_function(name), builder)
    return module


def _replace_constant_masked_stores(module: Any) -> Any:
    """Replace masked stores under constant masks by stores of the lanes.

    LLVM 22.1 miscompiles them on x86: of truncated integers under a mask with one lane, it stores the wide integer.
    `masked.store(trunc <8 x i32> to <8 x i8>)` of lane 0 writes four bytes.
    """
    if not any(_NARROW.match(f.name) for f in module.functions):
        return module
    text = str(module)
    replaced = _KNOWN_MASK.sub(_split_constant_mask_store_into_runs, text)
    return module if replaced == text else llvm.parse_assembly(replaced, llvm.create_context())


_NARROW = re.compile(r"llvm\.masked\.store\.v\d+i(8|16|32)\b")
_KNOWN_MASK = re.compile(
    r"^ *(?:tail )?call void @llvm\.masked\.store\.v(\d+)i(8|16|32)\.p0\(<\d+ x i\d+> (.+), ptr (?:align \d+ )?(\S+), "
    r"(?:i32 \d+, )?<\d+ x i1> <([^>]+)>\).*$",
    re.MULTILINE,
)


def _split_constant_mask_store_into_runs(masked_store: re.Match[str]) -> str:
    """Return stores of the lanes of a mask, by runs whose lengths are powers of two."""
    width, bits, value, place, mask = masked_store.groups()
    lanes = [k for k, lane in enumerate(mask.split(", ")) if lane == "i1 true"]
    name, lines = f"%known.{masked_store.start()}", []
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


def compile_object(source: str, host: Host, tier: LlvmTier, also_allowed_symbols: Collection[str] = ()) -> bytes:
    """Compile `source`, which may refer to the symbols in `libm_fallback_symbols`. Raises CompileError if it needs any other
    function."""
    with _lock:
        image = bytes(_create_target_machine(host, tier).emit_object(_parse_and_run_tier_passes(source, host, tier)))
    check_undefined_symbols_if_elf(image, host, also_allowed_symbols)
    return image


def compile_batch_at_fast_tier(sources: Iterable[str], host: Host, also_allowed_symbols: Collection[str] = ()) -> bytes:
    """Compile several texts to one object of the fast tier, as LLVM's setup per object costs as much as a small kernel.

    A function of text k is named by its name followed by k.
    """
    return compile_object(_join_modules_and_number_functions(sources), host, LlvmTier.FAST, also_allowed_symbols)


def _join_modules_and_number_functions(sources: Iterable[str]) -> str:
    """Join texts to one module: common declarations occur once, and metadata is renumbered."""
    texts, shared, count = [], dict[str, None](), 0
    for k, source in enumerate(sources):
        shared.update(dict.fromkeys(_SHARED.findall(source)))
        text = _SHARED.sub("", source)
        for name in _DEFINED.findall(text):
            text = text.replace(f"@{name}(", f"@{name}{k}(")
        texts.append(_renumber_metadata(text, count))
        count += len(_METADATA.findall(text))
    return "".join([*texts, *shared])


def _renumber_metadata(text: str, first: int) -> str:
    return _METADATA.sub(lambda match: f"!{first + int(match[1])}", text)


_SHARED = re.compile(r"^(?:declare|attributes) .*\n", re.MULTILINE)
_DEFINED = re.compile(r"^define \S+ @(\w+)\(", re.MULTILINE)
_METADATA = re.compile(r"!(\d+)")


def check_undefined_symbols_if_elf(image: bytes, host: Host, also_allowed_symbols: Collection[str] = ()) -> None:
    """Raise CompileError if an object refers to symbols outside `libm_fallback_symbols`; a kernel's object is freestanding."""
    if image[:4] == b"\x7fELF":
        permitted = {*also_allowed_symbols, *host.libm_fallback_symbols, "_GLOBAL_OFFSET_TABLE_"}
        foreign = [name for name in undefined_symbols(image) if name not in permitted]
        if foreign:
            raise CompileError(f"the compiled kernel calls {', '.join(foreign)}, which a freestanding object may not")


def emit_assembly(source: str, target: Host, tier: LlvmTier) -> str:
    """Return assembly text, for people and tests."""
    with _lock:
        return str(_create_target_machine(target, tier).emit_assembly(_parse_and_run_tier_passes(source, target, tier)))


@dataclass(frozen=True, slots=True)
class LinkedObject:
    """Linked code, valid as long as this object lives.

    `addresses` are those of the symbols asked for, in order. `owner` frees the code; it is LLVM's tracker, which keeps its session
    alive, or a CodeBlock.
    """

    addresses: tuple[int, ...]
    owner: Any

    @property
    def address(self) -> int:
        """The address of the first symbol."""
        return self.addresses[0]


#: Objects per session. LLVM keeps about 10 KB of each, also of freed ones, as long as anything of the session is used. So a live
#: program may keep this many times 10 KB. With 16 objects, making sessions costs 25 us per object.
SESSION = 16


class _JitSessions:
    """The session that links new objects; earlier ones live as long as code of theirs."""

    def __init__(self) -> None:
        self.current: Any = None
        self.linked = 0

    def renew_full_session_and_name_object(self) -> str:
        """Return the name of a new object, after making room for it in `current`."""
        if self.current is None or self.linked == SESSION:
            _initialize_llvm()
            machine = _create_target_machine(detect_host_without_gfni(), LlvmTier.FAST)
            # JITLink lays out an object as one block. RuntimeDyld maps each section by itself, and aborts if two are 2 GB apart.
            self.current, self.linked = llvm.create_lljit_compiler(machine, use_jit_link=True), 0
        self.linked += 1
        return f"uops{self.linked}"


_sessions = _JitSessions()


def load_object(image: bytes, *symbols: str) -> LinkedObject:
    """Link an object into this process, and return the addresses of these symbols. Raises Crash if that cannot be done."""
    if not is_self_contained(image):
        return link_by_llvm(image, *symbols)
    block = CodeBlock(image)
    if lacking := [symbol for symbol in symbols if symbol not in block.symbols]:
        raise Crash(f"linking: the object lacks {', '.join(lacking)}")
    return LinkedObject(tuple(block.symbols[symbol] for symbol in symbols), block)


def link_by_llvm(image: bytes, *symbols: str) -> LinkedObject:
    """Link any object for this machine as `load_object` does; it may refer to symbols of this process."""
    with _lock:
        library = llvm.JITLibraryBuilder().add_object_img(image).add_current_process()
        for symbol in symbols:
            library.export_symbol(symbol)
        try:
            name = _sessions.renew_full_session_and_name_object()
            tracker = library.link(_sessions.current, name)
        except RuntimeError as e:
            raise Crash(f"LLVM cannot link an object: {e}") from e
        tracker.session = _sessions.current  # freed after the code
        return LinkedObject(tuple(int(tracker[symbol]) for symbol in symbols), tracker)


def keep_alive(linked: LinkedObject) -> None:
    """Keep code that LLVM linked until the process ends, as threads may run it while Python exits."""
    for owner in (linked.owner, linked.owner.session):
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(owner))
