"""File tests: a `.uops` program whose comments say what it is run on and what must come out.

    ; input p0: 1 -2 0x7fc00000          elements in row-major order, numbers or bit patterns; the shape is the Param's
    ; input n: 3                         a variable
    ; check 0: 5 nan 0x80000000          the first value; a bit pattern is compared by bits, `nan` is any NaN, `*` is anything
    ; check b7: 1 2                      the final contents of a Buffer
    ; trap                               the run must trap
    ; trap: lane (lidx0=1)               and its message must say this; there may be several such lines
    ; error: PAD.C2 in tensor            the verifier must break exactly this claim in this dialect

Without `check`, `trap` or `error` a file asks that every runner agrees with the interpreter's allowed sets.
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

from uops.backends.answer import is_variable, leaves
from uops.backends.arrays import STORAGE
from uops.interp import run
from uops.spec.errors import SpecError, Trap
from uops.spec.ir import build as b
from uops.spec.ir.dtypes import DType, Kind
from uops.spec.ir.node import Dim, UOp, substitute, toposort
from uops.spec.ir.ops import Op
from uops.spec.ir.text import MAX_FILE, parse
from uops.spec.untrusted import BadFile, describe_path, printable, read_text

Array = npt.NDArray[Any]
_DIRECTIVE = re.compile(r"^;\s*(input|check|error|trap)\b\s*([^:]*?)\s*(?::\s*(.*))?$")


#: Begins the line that says how a campaign found a program (`uops.fuzz.reduce.reproducer`).
HEADER = "; uops fuzz: "


@dataclass(slots=True)
class FileTest:
    """A parsed file."""

    path: Path
    graph: UOp
    inputs: dict[str, Any] = field(default_factory=dict)
    checks: dict[int | str, list[str]] = field(default_factory=dict)
    error: tuple[str, str] | None = None
    trap: bool = False
    says: list[str] = field(default_factory=list)


def load(path: Path) -> FileTest:
    """Read a file test. Raises SpecError on a program or directive that cannot be read; its message begins with the path."""
    text = text_of(path)
    try:
        return _read(path, text)
    except SpecError as e:
        raise SpecError(f"{describe_path(path)}: {printable(str(e))}", claim=e.claim, line=e.line, column=e.column) from e


def _read(path: Path, text: str) -> FileTest:
    test = FileTest(path, parse(text))
    found = [(n, m) for n, raw in enumerate(text.splitlines(), 1) if (m := _DIRECTIVE.match(raw.strip()))]
    for n, m in sorted(found, key=lambda item: not _is_of_variable(test.graph, item[1])):  # extents may depend on variables
        try:
            _directive(test, m, n)
        except (ValueError, OverflowError, IndexError) as e:
            raise SpecError(f"line {n}: {m.group(1)} {m.group(2)} cannot be read: {e}", line=n, column=1) from e
    return test


def text_of(path: Path) -> str:
    """The text of a program. Raises SpecError where it is no text of that size, and OSError."""
    try:
        return read_text(path, most=MAX_FILE)
    except BadFile as e:
        raise SpecError(str(e), line=1, column=1) from e


def _is_of_variable(graph: UOp, m: re.Match[str]) -> bool:
    u = _leaf(graph, m.group(2)) if m.group(1) == "input" else None
    return u is not None and (u.op is Op.DEFINE_VAR or is_variable(u))


def inputs_of(path: Path) -> dict[str, Any]:
    """The inputs that a file holds; none, where it says nothing of inputs."""
    text = text_of(path)
    return load(path).inputs if any(x.lstrip().startswith("; input ") for x in text.splitlines()) else {}


def _directive(test: FileTest, m: re.Match[str], n: int) -> None:
    word, name, rest = m.group(1), m.group(2), (m.group(3) or "").strip()
    if word == "input":
        test.inputs[name] = _input(test, name, rest.split(), n)
    elif word == "check":
        test.checks[int(name) if name.isdigit() else name] = rest.split()
    elif word == "trap":
        test.trap = True
        test.says += [rest] if rest else []
    else:
        claim, _, dialect = rest.partition(" in ")
        test.error = (claim.strip(), dialect.strip() or "tensor")


#: How inputs name memory and variables of the second document.
OF_BESTIARY: dict[Op, Callable[[UOp], str]] = {
    Op.B_PARAM: lambda u: f"p{u.arg.slot}",
    Op.B_BUFFER: lambda u: f"b{u.src[0].arg.id}" if u.src and u.src[0].op is Op.UNIQUE else "",  # of what is ill-formed, none
    Op.DEFINE_VAR: lambda u: str(u.arg.name),
}


def _input(test: FileTest, name: str, words: list[str], n: int) -> Any:
    u = _leaf(test.graph, name)
    if u is None:
        raise SpecError(f"line {n}: the program has no input {name}", line=n, column=1)
    if u.op is Op.DEFINE_VAR or is_variable(u):
        if len(words) != 1:
            raise SpecError(f"line {n}: {name} is one integer, got {len(words)} words", line=n, column=1)
        return int(words[0])
    try:
        shape = tuple(extent(k, test.inputs) for k in u.shape)
    except (SpecError, Trap) as e:
        raise SpecError(f"line {n}: the shape of {name} is not known: {e}", line=n, column=1) from e
    if len(words) != math.prod(shape):
        raise SpecError(f"line {n}: {name} has shape {shape}, got {len(words)} elements", line=n, column=1)
    return _stack(words, u.dtype, shape)


def extent(n: Dim, inputs: Mapping[str, Any]) -> int:
    """An extent under the values of the variables, as the interpreter computes it.

    Raises SpecError where one is missing, Trap where there is no such value.
    """
    if not isinstance(n, UOp):
        return int(n)
    named = [v for v in toposort(n) if (v.op is Op.DEFINE_VAR or is_variable(v)) and v.arg.name in inputs]
    return int(run(substitute(n, {v: b.const(int(inputs[v.arg.name]), v.dtype) for v in named}), {}).values[0])


def _leaf(graph: UOp, name: str) -> UOp | None:
    """The node that an input is for: one outside of bodies, whose Params are numbered anew."""
    found = leaves(graph).get(name)
    return found or next((u for u in toposort(graph) if u.op in OF_BESTIARY and OF_BESTIARY[u.op](u) == name), None)


def _stack(words: list[str], d: DType, shape: tuple[int, ...]) -> Array:
    found = np.empty(len(words), STORAGE[d])
    for k, w in enumerate(words):
        found[k] = element(w, d)
    return found.reshape(shape)


def element(word: str, d: DType) -> Array:
    """One element: `0x...` by bits, else a number rounded to `d`."""
    if word.startswith("0x"):
        bits = np.array(int(word, 16), np.uint64)
        return bits.astype(np.bool_) if d.kind is Kind.BOOL else bits.astype(f"u{STORAGE[d].itemsize}").view(STORAGE[d])
    value = b.convert(float(word) if d.is_float else int(word), d)
    return np.array(value).astype(STORAGE[d])


def wrong(test: FileTest, got: dict[int | str, Array]) -> list[str]:
    """What the checks find wrong with a run's outputs."""
    found = []
    for output, words in test.checks.items():
        if output not in got:
            found.append(f"no output {output}")
            continue
        flat = np.ascontiguousarray(got[output]).reshape(-1)
        if len(flat) != len(words):
            found.append(f"output {output} has {len(flat)} elements, expected {len(words)}")
            continue
        found += [
            f"output {output}[{k}] is {x!r}, expected {w}"
            for k, (x, w) in enumerate(zip(flat, words, strict=True))
            if not _is(x, w)
        ]
    return found


def _is(x: Any, word: str) -> bool:
    if word == "*":
        return True
    a = np.asarray(x)
    if word == "nan":
        return bool(np.isnan(a.astype(np.float64)))
    if word.startswith("0x"):
        return int(a.view(f"u{a.dtype.itemsize}")) == int(word, 16)
    return bool(a.astype(np.float64) == float(word)) if a.dtype.kind not in "iu" else int(a) == int(word)
