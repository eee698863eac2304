"""The contract of a backend, for those who judge one and those who write one.

A backend has a name, a version, capabilities that it declares *before* a run, and `run(graph, inputs) -> Result`. A backend that
consists of a renderer and a toolchain derives from `CompilerBackend`, and leaves lowering, buffers and launches to `uops.compiler`.
Inputs and results are NumPy arrays in the dtypes of `uops.backends.arrays`; keys are `p<slot>`, `b<unique>` and variables' names.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any, ClassVar

from uops.spec.errors import Unsupported
from uops.spec.ir import dtypes as dt
from uops.spec.ir.dtypes import DType
from uops.spec.ir.node import UOp
from uops.spec.result import Result
from uops.spec.verify.infer import infer_tensor_kernel_or_bestiary_dialect

if TYPE_CHECKING:
    from uops.compiler import Target

Inputs = Mapping[str, Any]

#: The surface of a backend that evaluates TENSOR graphs.
TENSOR_SURFACE = "tensor"
#: The surface of a backend that runs launches of kernels, of any later dialect, on memory that it is given.
KERNEL_SURFACE = "kernel"
#: The surface of a backend that has `render`, `compile` and `load` alone: launches run through the launcher of `uops.compiler`.
RENDERER_SURFACE = "renderer"
#: The surface of a backend whose TENSOR graphs may have values on several devices.
DEVICES_SURFACE = "devices"
#: The surface of a backend that runs native code: text in the language that it declares, registered functions, compiled programs.
NATIVE_SURFACE = "native"
SURFACES = (TENSOR_SURFACE, KERNEL_SURFACE, RENDERER_SURFACE, DEVICES_SURFACE, NATIVE_SURFACE)
#: Languages of native text (R168): C, OpenCL C, CUDA C and the instructions of LLVM IR.
LANGUAGES = ("c", "opencl", "cuda", "llvm")
#: Traits that a backend may declare: ways to differ from `strict` on purpose. Its cells that differ so alone are scored apart.
FLUSHES_SUBNORMALS, OTHER_NAN_BITS, SATURATES_FLOATS = TRAITS = ("flushes-subnormals", "other-nan-bits", "saturates-floats")


@dataclass(frozen=True, slots=True)
class Missing:
    """Rows and dtypes that a backend lacks. `row` and `dtype` are globs over row ids and dtype names."""

    row: str
    dtype: str
    reason: str


@dataclass(frozen=True, slots=True)
class Deviation:
    """Rows and dtypes where a backend is known to differ at `level` (`strict` or `core`); `link` points to the explanation."""

    row: str
    dtype: str
    level: str
    reason: str
    link: str


@dataclass(frozen=True, slots=True)
class Capabilities:
    """A backend's declaration before the run. Sizes are in bytes; widths are in lanes, widest last.

    `surfaces` are what the backend has: `tensor` if `run` takes TENSOR graphs, and `kernel` if it takes launches of kernels, of any
    later dialect. They are `renderer` for a target alone (`CompilerBackend`), which our launcher asks launches of kernels.

    `bestiary` says that `run` also takes graphs of the second document; a backend without it is given their legal forms.
    `language` is that of native text, one of `LANGUAGES`. `abilities` are those of a target of this compiler.
    `traits` are of `TRAITS`: each stands for a second allowed result of each program, and what is outside of that still fails.
    """

    dtypes: tuple[DType, ...] = dt.STORABLE
    unsupported: tuple[Missing, ...] = ()
    deviations: tuple[Deviation, ...] = ()
    levels: tuple[str, ...] = ("strict", "core")
    vector_widths: tuple[int, ...] = (1,)
    local_memory: int = 0
    threads: int = 1
    tensor_cores: tuple[str, ...] = ()
    surfaces: tuple[str, ...] = (TENSOR_SURFACE,)
    bestiary: bool = False
    language: str = "c"
    abilities: tuple[str, ...] = ()
    traits: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for trait in self.traits:
            if trait not in TRAITS:
                raise ValueError(f"traits must be among {', '.join(TRAITS)}, got {trait!r:.80}")
        if self.language not in LANGUAGES:
            raise ValueError(f"language must be one of {', '.join(LANGUAGES)}, got {self.language!r:.80}")

    @classmethod
    def of_target(cls, target: Target, language: str, threads: int = 1) -> Capabilities:
        """Declare every row and dtype, as the compiler gives a target only what it has, and the target's own description.

        `threads` is the number of cores behind the workgroups of a launch, which the target's description leaves out.
        """
        machine, widest = target.machine, target.machine.lanes(dt.float32)
        return cls(
            vector_widths=tuple(1 << k for k in range(widest.bit_length())),
            local_memory=machine.local_memory,
            threads=max(threads, machine.cores),
            tensor_cores=tuple(dict.fromkeys(arg.name for arg in machine.tensor_cores)),
            surfaces=COMPILED_SURFACES,
            bestiary=True,
            language=language,
            abilities=tuple(sorted(ability.name.lower() for ability in target.abilities)),
        )

    def can_be_asked(self, surface: str) -> bool:
        """Return True if cases of this surface can be put to the backend. A renderer is asked launches of kernels."""
        return surface in self.surfaces or (surface == KERNEL_SURFACE and RENDERER_SURFACE in self.surfaces)

    def missing(self, row: str, dtype: DType | None = None) -> Missing | None:
        """Return the declared gap that covers this cell, or None if the backend claims to have it. `dtype` None stands for a row
        without one."""
        if dtype is not None and dtype in dt.STORABLE and dtype not in self.dtypes:
            return Missing(row, dtype.name, f"no dtype {dtype.name}")
        return next((m for m in self.unsupported if _covers(m.row, m.dtype, row, dtype)), None)

    def deviation(self, row: str, dtype: DType | None, level: str) -> Deviation | None:
        """Return the declared deviation of this cell at `level`, or None."""
        return next((d for d in self.deviations if d.level == level and _covers(d.row, d.dtype, row, dtype)), None)

    def to_json(self) -> dict[str, Any]:
        """Return the fields as JSON, to cross a process boundary. A field of a wrong type may raise any exception."""
        scalars = {f.name: list(getattr(self, f.name)) if f.name in _SEQUENCES else getattr(self, f.name) for f in fields(self)}
        records = {"unsupported": [asdict(m) for m in self.unsupported], "deviations": [asdict(d) for d in self.deviations]}
        return scalars | {"dtypes": [d.name for d in self.dtypes]} | records

    @classmethod
    def of_json(cls, declared: Mapping[str, Any]) -> Capabilities:
        """Read the JSON of `to_json`, which other code may have written. Raises ValueError, KeyError or TypeError for a malformed
        field."""
        values: dict[str, Any] = {
            name: tuple(_require_type(kind, v, name) for v in declared[name]) for name, kind in _SEQUENCES.items()
        }
        values["dtypes"] = tuple(dt.DTYPES[d] for d in values["dtypes"])
        values["unsupported"] = tuple(Missing(**_require_texts(m, "unsupported")) for m in values["unsupported"])
        values["deviations"] = tuple(Deviation(**_require_texts(d, "deviations")) for d in values["deviations"])
        values |= {name: _require_type(int, declared[name], name) for name in ("local_memory", "threads")}
        values["bestiary"] = _require_type(bool, declared["bestiary"], "bestiary")
        values["language"] = _require_type(str, declared["language"], "language")
        return cls(**values)


#: Field that is a sequence -> JSON type of its elements.
_SEQUENCES: dict[str, type] = {
    "dtypes": str, "unsupported": dict, "deviations": dict, "levels": str, "vector_widths": int, "tensor_cores": str,
    "surfaces": str, "abilities": str, "traits": str,
}  # fmt: skip


def _require_type(kind: type, value: Any, field: str) -> Any:
    if type(value) is not kind:
        raise TypeError(f"{field} holds {value!r:.80}, expected {kind.__name__}")
    return value


def _require_texts(fields_by_name: Mapping[str, Any], field: str) -> dict[str, str]:
    return {k: _require_type(str, v, field) for k, v in fields_by_name.items()}


def _covers(row_glob: str, dtype_glob: str, row: str, dtype: DType | None) -> bool:
    return fnmatchcase(row, row_glob) and fnmatchcase(dtype.name if dtype else "", dtype_glob)


class Backend(ABC):
    """A subject under test. One instance serves one thread; `close` releases its resources."""

    name: ClassVar[str]

    @abstractmethod
    def version(self) -> str:
        """Return the name and version of everything that decides results, for reports."""

    @abstractmethod
    def capabilities(self) -> Capabilities:
        """Return the declared capabilities, which stay the same as long as the process lives."""

    @abstractmethod
    def run(self, graph: UOp, inputs: Inputs) -> Result:
        """Evaluate a TENSOR graph, or a launch of kernels if the surface `kernel` is declared.

        A launch is a Linear of Calls, which has no values: its result is the memory that it writes. An input may be an array of any
        strides and alignment, read-only, or in memory of another input. Inputs stay as they are, and so does an earlier result.
        Raises Unsupported for an unsupported op, and Trap for a defined failure that it detects.
        """

    def precompile(self, launch: UOp) -> UOp:
        """Return a launch with a Program for each kernel, whose Binary `run` loads instead of compiling it (R169).

        Raises Unsupported where the backend has no such programs.
        """
        raise Unsupported("programs that were compiled before", self.name)

    def close(self) -> None:
        """Release devices and memory; the instance is unusable afterwards."""
        return


#: The surfaces of a target of this compiler.
COMPILED_SURFACES = (TENSOR_SURFACE, KERNEL_SURFACE, NATIVE_SURFACE, DEVICES_SURFACE)


class CompilerBackend(Backend):
    """A backend that is a target of `uops.compiler`. A subclass adds a name, capabilities and a target, nothing else.

    `guard` places every buffer between guard pages: against the page after it (True or "end") or the one before ("start"). An
    access out of bounds then ends the process, so run such a backend in a worker.
    """

    def __init__(self, target: Target, *, guard: bool | str = False) -> None:
        if guard not in (False, True, "end", "start"):
            raise ValueError(f"guard must be False, True, 'end' or 'start', got {guard!r}")
        self.target = target
        self.guard = "end" if guard is True else guard

    def run(self, graph: UOp, inputs: Inputs) -> Result:
        """Compile the graph, or look up its compiled program, and call it. It may be of any dialect."""
        dialect = infer_tensor_kernel_or_bestiary_dialect(graph)
        target = self.unguarded_target
        if target is None:
            from uops.backends.worker.guard import GuardedProgram, GuardSide  # late, as it loads the compiler

            return GuardedProgram(graph, self.target, GuardSide(self.guard), dialect=dialect)(inputs)
        from uops.compiler import compile  # late: other backends implement this contract without the compiler

        return compile(graph, target, dialect=dialect)(inputs)

    def precompile(self, launch: UOp) -> UOp:
        """Return the launch as the last stage gives it."""
        from uops.compiler import lower  # late: other backends implement this contract without the compiler

        return lower(launch, self.target, dialect=infer_tensor_kernel_or_bestiary_dialect(launch))

    @property
    def unguarded_target(self) -> Target | None:
        """The target for which a program may be compiled once; None with `guard`, where each run compiles anew."""
        return None if self.guard else self.target
