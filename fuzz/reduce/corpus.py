"""File tests: `.uops` programs whose comments say on what inputs they run and what must come out.

    ; input p0: 1 -2 0x7fc00000          elements in row-major order, numbers or bit patterns; the shape is the Param's
    ; input p1: at 5000000000 1 -2       elements from position 5000000000 on; all others are zero, and there may be more `at`
    ; input n: 3                         a variable
    ; check 0: 5 nan 0x80000000          the first value; a bit pattern is compared by bits, `nan` is any NaN, `*` is anything
    ; check b7: 1 2                      the final contents of a Buffer
    ; trap                               the run must trap
    ; trap: lane (lidx0=1)               and its message must contain this; there may be several such lines
    ; error: PAD.C2 in tensor            the verifier must report exactly this claim in this dialect

A file without `check`, `trap` or `error` asks that every runner agrees with the interpreter's allowed sets.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from uops.backends.answer import collect_caller_input_nodes, is_variable
from uops.backends.arrays import STORAGE
from uops.backends.testing.sparse import fill_runs
from uops.interp import run
from uops.spec.errors import SpecError, Trap
from uops.spec.ir import build as b
from uops.spec.ir.dtypes import DType, DTypeKind
from uops.spec.ir.native import refuse_native_text
from uops.spec.ir.node import Dim, UOp, substitute, toposort
from uops.spec.ir.ops import Op
from uops.spec.ir.text import MAX_FILE, parse, parse_and_locate_nodes
from uops.spec.untrusted import BadFile, describe_path, escape_unprintable, read_text

Array = npt.NDArray[Any]
#: A comment line with a directive: its word, its name and its text.
_DIRECTIVE = re.compile(r"^;\s*(input|check|error|trap)\b\s*([^:]*?)\s*(?::\s*(.*))?$")


#: Word before the position of a run of elements.
_AT = "at"
#: Start of the line that says how a campaign found a program (`uops.fuzz.reduce.reproducer`).
HEADER = "; uops fuzz: "


@dataclass(slots=True)
class FileTest:
    """A parsed file test. `checks` holds the expected words per output, `error` the claim and the dialect."""

    path: Path
    graph: UOp
    inputs: dict[str, Any] = field(default_factory=dict)
    checks: dict[int | str, list[str]] = field(default_factory=dict)
    error: tuple[str, str] | None = None
    trap: bool = False
    trap_messages: list[str] = field(default_factory=list)


def load_file_test(path: Path) -> FileTest:
    """Read a file test. Raises SpecError, with the path in its message, if the program or a directive cannot be read."""
    text = read_program_text(path)
    try:
        return _parse_file_test(path, text)
    except SpecError as e:
        raise SpecError(f"{describe_path(path)}: {escape_unprintable(str(e))}", claim=e.claim, line=e.line, column=e.column) from e


def _parse_file_test(path: Path, text: str) -> FileTest:
    test = FileTest(path, parse(text))
    directives = [(n, m) for n, raw in enumerate(text.splitlines(), 1) if (m := _DIRECTIVE.match(raw.strip()))]
    for n, m in sorted(
        directives, key=lambda item: not _is_of_variable(test.graph, item[1])
    ):  # variables first: extents may depend on them
        try:
            _apply_directive(test, m, n)
        except (ValueError, OverflowError, IndexError) as e:
            raise SpecError(f"line {n}: {m.group(1)} {m.group(2)} cannot be read: {e}", line=n, column=1) from e
    return test


def read_program_text(path: Path) -> str:
    """Return the text of a program. Raises SpecError if the file is no text or too large, and OSError."""
    try:
        return read_text(path, max_bytes=MAX_FILE)
    except BadFile as e:
        raise SpecError(str(e), line=1, column=1) from e


def refuse_file_with_native_text(path: Path, how_to_allow: str) -> None:
    """Raise SpecError if a program holds native text (R167), or cannot be read."""
    try:
        graph = parse_and_locate_nodes(read_program_text(path))
    except SpecError as e:
        raise SpecError(f"{describe_path(path)}: {escape_unprintable(str(e))}", claim=e.claim, line=e.line, column=e.column) from e
    refuse_native_text(graph, f"{describe_path(path)}: ", how_to_allow)


def _is_of_variable(graph: UOp, m: re.Match[str]) -> bool:
    leaf = _find_leaf(graph, m.group(2)) if m.group(1) == "input" else None
    return leaf is not None and (leaf.op is Op.DEFINE_VAR or is_variable(leaf))


def read_inputs(path: Path) -> dict[str, Any]:
    """Return the inputs that a file holds, or none if it has no input lines."""
    text = read_program_text(path)
    return (
        load_file_test(path).inputs
        if any((m := _DIRECTIVE.match(x.strip())) and m.group(1) == "input" for x in text.splitlines())
        else {}
    )


def _apply_directive(test: FileTest, match: re.Match[str], line: int) -> None:
    word, name, text = match.group(1), match.group(2), (match.group(3) or "").strip()
    if word == "input":
        test.inputs[name] = _parse_input(test, name, text.split(), line)
    elif word == "check":
        test.checks[int(name) if name.isdigit() else name] = text.split()
    elif word == "trap":
        test.trap = True
        test.trap_messages += [text] if text else []
    else:
        claim, _, dialect = text.partition(" in ")
        test.error = (claim.strip(), dialect.strip() or "tensor")


#: Op of the second document -> the key of an input of its nodes; "" for ill-formed nodes.
OF_BESTIARY: dict[Op, Callable[[UOp], str]] = {
    Op.B_PARAM: lambda u: f"p{u.arg.slot}",
    Op.B_BUFFER: lambda u: next((f"b{s.arg.id}" for s in u.src[:1] if s.op is Op.UNIQUE), ""),  # unique
    Op.DEFINE_VAR: lambda u: str(u.arg.name),
}


def _parse_input(test: FileTest, name: str, words: list[str], line: int) -> Any:
    leaf = _find_leaf(test.graph, name)
    if leaf is None:
        raise SpecError(f"line {line}: the program has no input {name}", line=line, column=1)
    if leaf.op is Op.DEFINE_VAR or is_variable(leaf):
        if len(words) != 1:
            raise SpecError(f"line {line}: {name} is one integer, got {len(words)} words", line=line, column=1)
        return int(words[0])
    try:
        shape = tuple(evaluate_extent(dim, test.inputs) for dim in leaf.shape)
    except (SpecError, Trap) as e:
        raise SpecError(f"line {line}: the shape of {name} is not known: {e}", line=line, column=1) from e
    if words[:1] != [_AT] and len(words) != math.prod(shape):
        raise SpecError(f"line {line}: {name} has shape {shape}, got {len(words)} elements", line=line, column=1)
    return parse_array(words, leaf.dtype, shape)


def evaluate_extent(dim: Dim, inputs: Mapping[str, Any]) -> int:
    """Evaluate an extent under the values of the variables, as the interpreter does.

    Raises SpecError if a value is missing, Trap if the extent has no value.
    """
    if not isinstance(dim, UOp):
        return int(dim)
    named = [v for v in toposort(dim) if (v.op is Op.DEFINE_VAR or is_variable(v)) and v.arg.name in inputs]
    return int(run(substitute(dim, {v: b.const(int(inputs[v.arg.name]), v.dtype) for v in named}), {}).values[0])


def _find_leaf(graph: UOp, name: str) -> UOp | None:
    """Find the node that an input belongs to. Params of bodies, which are numbered anew, have no inputs."""
    leaf = collect_caller_input_nodes(graph).get(name)
    return leaf or next((u for u in toposort(graph) if u.op in OF_BESTIARY and OF_BESTIARY[u.op](u) == name), None)


def parse_array(words: list[str], d: DType, shape: tuple[int, ...]) -> Array:
    """Parse the elements of an array, all of them or its runs. Raises ValueError for a run that is out of bounds or malformed."""
    if words[:1] != [_AT]:
        return _parse_elements(words, d).reshape(shape)
    starts = [k for k, w in enumerate(words) if w == _AT]
    runs = [words[k + 1 : end] for k, end in zip(starts, [*starts[1:], None], strict=True)]
    if [] in runs:
        raise ValueError(f"{_AT!r} stands before the position of a run")
    return fill_runs(shape, np.dtype(STORAGE[d]), [(int(first), _parse_elements(run, d)) for first, *run in runs])


def _parse_elements(words: list[str], d: DType) -> Array:
    elements = np.empty(len(words), STORAGE[d])
    for k, w in enumerate(words):
        elements[k] = parse_element(w, d)
    return elements


def parse_element(word: str, d: DType) -> Array:
    """Parse one element: `0x...` as bits, True or False, else a number that is rounded to `d`."""
    if word.startswith("0x"):
        bits = np.array(int(word, 16), np.uint64)
        if int(word, 16) >> 8 * STORAGE[d].itemsize:
            raise ValueError(f"{word} has more bits than {d}")
        return bits.astype(np.bool_) if d.kind is DTypeKind.BOOL else bits.astype(f"u{STORAGE[d].itemsize}").view(STORAGE[d])
    if d.kind is DTypeKind.BOOL and word in ("True", "False"):
        return np.array(word == "True")
    value = b.convert_constant(float(word) if d.is_float else int(word), d)
    return np.array(value).astype(STORAGE[d])


def find_check_failures(test: FileTest, outputs: dict[int | str, Array]) -> list[str]:
    """List how a run's outputs differ from the checks."""
    failures = []
    for output, words in test.checks.items():
        if output not in outputs:
            failures.append(f"no output {output}")
            continue
        flat = np.ascontiguousarray(outputs[output]).reshape(-1)
        if len(flat) != len(words):
            failures.append(f"output {output} has {len(flat)} elements, expected {len(words)}")
            continue
        failures += [
            f"output {output}[{k}] is {x!r}, expected {w}"
            for k, (x, w) in enumerate(zip(flat, words, strict=True))
            if not _element_matches_check(x, w)
        ]
    return failures


def _element_matches_check(x: Any, check_word: str) -> bool:
    if check_word == "*":
        return True
    a = np.asarray(x)
    if check_word == "nan":
        return bool(np.isnan(a.astype(np.float64)))
    if check_word.startswith("0x"):
        return int(a.view(f"u{a.dtype.itemsize}")) == int(check_word, 16)
    return bool(a.astype(np.float64) == float(check_word)) if a.dtype.kind not in "iuO" else int(a) == int(check_word)
