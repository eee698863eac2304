"""Native code: what the names and texts of Ins, Custom and CustomFunction mean on a target.

Takes: a target's name, and a node or a name. Gives: a template of the target's language, or a function. Spec: Codegen/Ins, Custom,
CustomFunction, Program; R167 (native text), R168 (Ins and Custom on a target), R169 (functions and programs).

A Custom or CUSTOMI holds its template. An Ins holds a mnemonic, and `register_or_withdraw_instruction` says what text it is on a
target for operands and a result of given dtypes. A CustomFunction holds a name, and `register_function` says which function it is.
Samples:

    register_or_withdraw_instruction("llvm", "bswap", (dt.uint32,), dt.uint32, "call i32 @llvm.bswap.i32(i32 {0})")
    register_function("reverse", lambda out, values: np.copyto(out, values[::-1]))

`uops.compiler.host_functions` has the functions that are registered from the start. The instructions are those of the backends.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

from uops.compiler.host_functions import STANDARD_FUNCTIONS
from uops.compiler.place import untranslatable_error
from uops.spec.errors import CompileError, Crash, SpecError, Unsupported
from uops.spec.ir.dtypes import DType
from uops.spec.ir.node import UOp
from uops.spec.ir.ops import OPAQUE_INSTRUCTIONS, Op
from uops.spec.ir.scope import is_variable, scope_nodes
from uops.spec.untrusted import escape_to_one_line

#: A function of the host: it takes the memory of its Call as flat arrays, and a variable as an int, and writes in place. An array
#: that the Call does not write is read-only. No array may be used after the return.
HostFunction = Callable[..., None]
#: In place of a target's name: every target.
EVERY_TARGET = ""


class _InstructionKey(NamedTuple):
    target: str
    mnemonic: str
    operands: tuple[DType, ...]
    result: DType


class _Registry:
    """The registered instructions and functions; `version` changes with them."""

    def __init__(self) -> None:
        self.instructions: dict[_InstructionKey, str] = {}
        self.functions: dict[tuple[str, str], HostFunction] = {(EVERY_TARGET, n): f for n, f in STANDARD_FUNCTIONS.items()}
        self.version = 0


_registry = _Registry()


def registry_version() -> int:
    """Return a number that changes whenever something is registered or withdrawn: a part of the keys of compiled programs."""
    return _registry.version


def register_or_withdraw_instruction(
    target: str, mnemonic: str, operands: Sequence[DType], result: DType, template: str | None
) -> None:
    """Register the text of an Ins on a target for operands and a result of these dtypes, or withdraw it with None.

    `template` is what CUSTOMI would hold: `{k}` stands for operand k, and a doubled brace for itself. A small float is the unsigned
    integer of its bits. For an Ins without a result (void) it is a statement.
    """
    key = _InstructionKey(target, mnemonic, tuple(operands), result)
    if template is None:
        _registry.instructions.pop(key, None)
    else:
        render_template(template, ["" for _ in operands])
        _registry.instructions[key] = template
    _registry.version += 1


def register_function(name: str, function: HostFunction | None, target: str = EVERY_TARGET) -> None:
    """Register the function of a CustomFunction's name on a target, or on every target; withdraw it with None.

    One that is registered for a target goes before one for every target.
    """
    if function is None:
        _registry.functions.pop((target, name), None)
    else:
        _registry.functions[target, name] = function
    _registry.version += 1


def find_function(target: str, name: str) -> HostFunction:
    """Return the function of a CustomFunction on a target. Raises Unsupported where none is registered."""
    found = _registry.functions.get((target, name)) or _registry.functions.get((EVERY_TARGET, name))
    if found is None:
        known = sorted({n for t, n in _registry.functions if t in (target, EVERY_TARGET)})
        what = f"the CustomFunction {escape_to_one_line(name)}: it is not registered (`uops.compiler.native.register_function`)"
        raise Unsupported(f"{what}; registered are {', '.join(known) or 'none'}", target)
    return found


def find_template_of_ins_or_custom(target: str, ins_or_custom: UOp) -> str:
    """Return the template of an Ins, Custom or CUSTOMI. Raises Unsupported for an Ins that the target has not registered."""
    if ins_or_custom.op is not Op.INS:
        return str(ins_or_custom.arg.fmt)
    operands = tuple([s.dtype for s in ins_or_custom.src])
    template = _registry.instructions.get(_InstructionKey(target, ins_or_custom.arg.name, operands, ins_or_custom.dtype))
    if template is None:
        known = [
            _describe_dtypes(k.operands, k.result) for k in _registry.instructions if k[:2] == (target, ins_or_custom.arg.name)
        ]
        of = f"INS {escape_to_one_line(ins_or_custom.arg.name)} of {_describe_dtypes(operands, ins_or_custom.dtype)}"
        hint = (
            f"it is registered for {' and '.join(known) or 'no dtypes'} (`uops.compiler.native.register_or_withdraw_instruction`)"
        )
        raise Unsupported(f"{of}: {hint}", target)
    return template


def _describe_dtypes(operands: Sequence[DType], result: DType) -> str:
    return f"({', '.join(map(str, operands))}) to {result}"


_PLACEHOLDER = re.compile(r"\{\{|\}\}|\{(\d{1,5})\}|[{}]")


def render_template(template: str, operands: Sequence[str]) -> str:
    """Return a template with its operands. Raises SpecError for a brace that is neither doubled nor around an operand's number."""

    def render(match: re.Match[str]) -> str:
        if match[1] is not None and int(match[1]) < len(operands):
            return operands[int(match[1])]
        if match[0] in ("{{", "}}"):
            return match[0][0]
        raise SpecError(
            f"{match[0]} in {template!r}: expected {{0}} to {{{len(operands) - 1}}}, or a doubled brace", claim="CUSTOM.C2"
        )

    return _PLACEHOLDER.sub(render, template)


@contextmanager
def blame_native_text(linear: UOp, target: str) -> Iterator[None]:
    """Raise CompileError in place of Crash where a kernel holds native text, which the target's compiler may rightly reject."""
    try:
        yield
    except Crash as e:
        native = next((u for u in linear.src if u.op in OPAQUE_INSTRUCTIONS), None)
        if native is None:
            raise
        raise CompileError(f"{target} rejects a kernel with native text, {native!r}: {e}") from e


# Kernels compiled earlier


def describe_target(name: str, key: str) -> str:
    """Return what the Source of a Program says of its target."""
    return f"{name} {key}"


def require_programs_and_functions_for_target(launch: UOp, name: str, key: str) -> None:
    """Raise CompileError for a Program of another target in a launch, Unsupported for a CustomFunction that is not registered."""
    for body in dict.fromkeys(c.body for c in launch.src):
        if body.op is Op.PROGRAM:
            require_program_of_target(body, name, key)
        elif body.op is Op.CUSTOM_FUNCTION:
            find_function(name, body.arg.name)


def require_program_of_target(program: UOp, name: str, key: str) -> None:
    """Raise CompileError unless a Program was compiled for this very target: its name, its version, and its machine."""
    _, source, _ = program.src
    expected, got = describe_target(name, key), source.arg.target
    if got != expected:
        of = f"for the target {escape_to_one_line(got)!r}" if got else "for a target that it does not name"
        raise CompileError(
            f"R169 (functions and programs): a Program was compiled {of}, expected {expected!r}; compile it again for this target"
        )


def require_variables_within_program_bounds(call: UOp, error_root: UOp) -> None:
    """Raise CompileError unless the variables of a Call are within the bounds that its Program was compiled for."""
    linear, *_ = call.body.src
    for p in (u for u in scope_nodes(linear) if is_variable(u)):
        argument = call.arguments[p.arg.slot]
        (low, high), (lo, hi) = p.arg.bounds, argument.arg.bounds if is_variable(argument) else (-math.inf, math.inf)
        if not (low <= lo and hi <= high):
            got = f"[{lo}, {hi}]" if is_variable(argument) else argument.op.name.lower()
            detail = f"argument {p.arg.slot} needs a variable within [{low}, {high}], got {got}"
            raise untranslatable_error("R169 (functions and programs)", call, detail, error_root)
