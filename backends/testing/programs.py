"""Programs that a test leaves empty, and the backend under test compiles: what `run` then loads was made before (R169).

Takes: a launch of Programs, each with its list of instructions and an empty Source. Gives: the launch with the Source and the
Binary that `Backend.precompile` makes of each list. Spec: Codegen/Program, Source; PROGRAM, PROGRAM_BINARY.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from uops.spec.ir.node import UOp, toposort
from uops.spec.ir.ops import Op

if TYPE_CHECKING:
    from uops.backends.contract import Backend


def has_empty_program(graph: UOp) -> bool:
    """Return True if a graph has a Program that is to be compiled first."""
    return any(u.op is Op.SOURCE and not u.arg.code for u in toposort(graph))


def compile_uncompiled_programs(backend: Backend, launch: UOp) -> UOp:
    """Return a launch with the Source and the Binary of each Program, in either document's form.

    Raises Unsupported if the backend has no programs that are compiled before.
    """
    lists = [call.replace(src=(_list_of_program(call.body), *call.arguments)) for call in launch.src]
    compiled = backend.precompile(launch.replace(src=tuple(lists)))
    return launch.replace(src=tuple(map(_copy_compiled_code_into_call, launch.src, compiled.src)))


def _list_of_program(program: UOp) -> UOp:
    return next(s for s in program.src if s.op is Op.LINEAR)


def _copy_compiled_code_into_call(call: UOp, compiled: UOp) -> UOp:
    """Return a Call of a Program with the Source and the Binary of a compiled one."""
    _, source, binary = compiled.body.src
    code = {Op.SOURCE: source, Op.BINARY: binary, Op.PROGRAM_BINARY: UOp(Op.PROGRAM_BINARY, (), binary.arg)}
    body = call.body.replace(src=tuple([code.get(s.op, s) for s in call.body.src]))
    return call.replace(src=(body, *call.arguments))
