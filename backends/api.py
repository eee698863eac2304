"""`uops.compile`: a graph as a callable on NumPy arrays, for any backend."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from uops.backends import registry
from uops.backends.contract import KERNEL_SURFACE, Backend, CompilerBackend, Inputs
from uops.compiler.tensor.realize import install
from uops.spec.errors import SpecTypeError, SpecValueError, Unsupported
from uops.spec.ir.native import refuse_native_text
from uops.spec.ir.node import UOp
from uops.spec.ir.text import parse_file_and_locate_nodes
from uops.spec.result import Result
from uops.spec.untrusted import describe_path
from uops.spec.verify.dialects import Dialect
from uops.spec.verify.infer import infer_tensor_kernel_or_bestiary_dialect
from uops.spec.verify.verifier import verify

#: Maps arrays by key (`p<slot>`, `b<unique>`, a variable's name) to the values of the root and the buffers written.
Program = Callable[[Inputs], Result]

_local = threading.local()


def compile(
    graph_or_file: UOp | str | os.PathLike[str],
    backend: str = "llvm",
    *,
    validate: bool = False,
    fast_math: bool = False,
    dialect: Dialect | str | None = None,
    allow_native: bool = False,
    **options: Any,
) -> Program:
    """Compile a graph, or the `.uops` file at a path, for the backend of that name.

    `dialect` is what the graph is written in; by default `infer_tensor_kernel_or_bestiary_dialect` says it. A TENSOR graph is a
    program. A graph of a later dialect is a kernel, or a launch of kernels, and enters the pipeline at the stage that takes it. A
    backend that is no compiler target needs the surface `kernel` for it.

    On a compiler target, the program is compiled now and may be called by several threads. Any other backend evaluates the graph at
    each call, and its program is for the calling thread. The backend is loaded into this process, whoever wrote it; only the
    command line isolates foreign code in other processes.

    A graph may hold native text (R167): whoever builds one may as well run it. A file may not, unless `allow_native` is True.

    `options` are passed to the backend's factory. `validate` proves the claims of `uops.compiler.validate` about every kernel,
    which needs Z3 and a compiler target. `fast_math` lets float values change as the real numbers allow (R156), which needs a
    compiler target. Its rules are in `uops.compiler.rewrite.rules.fast_math`.

    Raises SpecError for an ill-formed graph, CompileError, Unsupported, Invalid for a kernel that is not validated, UnknownBackend
    and BrokenBackend.
    """
    if not isinstance(graph_or_file, (UOp, str, os.PathLike)):
        raise SpecTypeError(f"compile takes a UOp or a path, got {type(graph_or_file).__name__}")
    if not (dialect is None or isinstance(dialect, (Dialect, str))):
        raise SpecTypeError(f"compile takes a Dialect or the name of one, got {type(dialect).__name__}")
    graph = graph_or_file if isinstance(graph_or_file, UOp) else _read_file(graph_or_file, allow_native)
    written = (
        infer_tensor_kernel_or_bestiary_dialect(graph)
        if dialect is None
        else _find_dialect(dialect)
        if isinstance(dialect, str)
        else dialect
    )
    verify(graph, written if dialect is not None or written is Dialect.TENSOR else None)
    if validate and written not in (Dialect.TENSOR, Dialect.CALLIFIED, Dialect.BESTIARY):
        raise Unsupported(f"validation of a program of the {written.value} dialect: claims are about TENSOR programs", backend)
    instance = _get_thread_backend_or_new_for_options(backend, options)
    target = instance.unguarded_target if isinstance(instance, CompilerBackend) else None
    if target is None:
        if validate or fast_math:
            wanted = "validation" if validate else "fast-math"
            raise Unsupported(f"{wanted}: its kernels are not compiled in this process", backend)
        if written is not Dialect.TENSOR and not instance.capabilities().can_be_asked(KERNEL_SURFACE):
            raise Unsupported(f"a program of the {written.value} dialect: it takes TENSOR graphs alone", backend)
        return lambda inputs: instance.run(graph, inputs)
    from uops.compiler import compile as compile_for  # late: an evaluating backend needs no compiler
    from uops.compiler.config import default_config  # late, likewise

    config = default_config()
    effective_config = replace(config, validate=config.validate or validate, fast_math=config.fast_math or fast_math)
    return compile_for(graph, target, effective_config, written)


def _read_file(path: str | os.PathLike[str], allow_native: bool) -> UOp:
    """Read a `.uops` file. Raises SpecError, also for native text unless it is allowed."""
    graph = parse_file_and_locate_nodes(path)
    if not allow_native:
        refuse_native_text(graph, f"{describe_path(path)}: ", "pass allow_native=True if you trust the file")
    return graph.root


def _find_dialect(name: str) -> Dialect:
    """Return the dialect of a name. Raises SpecValueError."""
    if name not in (names := [d.value for d in Dialect]):
        raise SpecValueError(f"compile takes a dialect of {', '.join(names)}, got {name!r:.80}")
    return Dialect(name)


def _get_thread_backend_or_new_for_options(name: str, options: dict[str, Any]) -> Backend:
    """Return the calling thread's instance of a backend, since an instance serves one thread; with options, a new one."""
    if options:
        return registry.create_backend(name, **options)
    instances: dict[str, Backend] = _local.__dict__
    if name not in instances:
        instances[name] = registry.create_backend(name)
    return instances[name]


install(compile)  # Tensors are realized by compiling their graph for the backend named
