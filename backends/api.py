"""`uops.compile`: a graph as a callable on NumPy arrays, on any backend."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from uops.backends import registry
from uops.backends.contract import Backend, CompilerBackend, Inputs
from uops.compiler.tensor.realize import install
from uops.spec.errors import SpecTypeError, Unsupported
from uops.spec.ir.node import UOp
from uops.spec.ir.text import parse_file
from uops.spec.result import Result
from uops.spec.verify.dialects import Dialect
from uops.spec.verify.verifier import verify

#: Takes arrays by key (`p<slot>`, `b<unique>`, a variable's name) and gives the values of the root and the buffers written.
Program = Callable[[Inputs], Result]

_local = threading.local()


def compile(
    graph_or_file: UOp | str | os.PathLike[str],
    backend: str = "llvm",
    *,
    validate: bool = False,
    fast_math: bool = False,
    **options: Any,
) -> Program:
    """The program of a TENSOR graph, or of the `.uops` file at a path, on the backend of that name.

    A backend that is a compiler target compiles now, and the program may be called by several threads; any other evaluates the
    graph at each call and is for the calling thread. The backend is loaded into this process, whoever wrote it: only the command
    line keeps foreign code in processes of its own. `options` go to the backend's factory. With `validate`, every kernel is
    proved to do what `uops.compiler.validate` says, which needs Z3 and a target. With `fast_math`, float values may change as the
    real numbers allow (`uops.compiler.rewrite.rules.fast_math`; R156), which needs a target too. Raises SpecError for an ill-formed
    graph, CompileError, Unsupported, Invalid for a kernel that is not validated, and UnknownBackend or BrokenBackend.
    """
    if not isinstance(graph_or_file, (UOp, str, os.PathLike)):
        raise SpecTypeError(f"compile takes a UOp or a path, got {type(graph_or_file).__name__}")
    graph = graph_or_file if isinstance(graph_or_file, UOp) else parse_file(graph_or_file)
    verify(graph, Dialect.TENSOR)
    found = _instance(backend, options)
    compiled = isinstance(found, CompilerBackend) and not found.guard
    if validate and not compiled:
        raise Unsupported("validation: its kernels are not compiled in this process", backend)
    if fast_math and not compiled:
        raise Unsupported("fast-math: its kernels are not compiled in this process", backend)
    if isinstance(found, CompilerBackend) and not found.guard:
        from uops.compiler import compile as compile_for
        from uops.compiler.config import default

        config = default()
        asked = replace(config, validate=config.validate or validate, fast_math=config.fast_math or fast_math)
        return compile_for(graph, found.target, asked)
    return lambda inputs: found.run(graph, inputs)


def _instance(name: str, options: dict[str, Any]) -> Backend:
    """A backend without options is made once per thread: an instance serves one."""
    if options:
        return registry.get(name, **options)
    known: dict[str, Backend] = _local.__dict__
    if name not in known:
        known[name] = registry.get(name)
    return known[name]


install(compile)  # Tensors are realized by compiling their graph for the backend named
