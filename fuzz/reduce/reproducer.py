"""Reproducers: a failing program as one file, which is a `.uops` text with its inputs and a header that says how it was found.

    ; uops fuzz: {...}                 the oracle, the backend, the seed, versions, and what was found, as JSON
    ; input p0: 0x3f800000 0x7fc00000  as in file tests (`uops.fuzz.reduce.corpus`): floats by bits
    %0 = ...

`write_reproducer` and `read_reproducer` are inverse, except for inputs that the program does not take. `uops run FILE`
evaluates the program on its inputs, in the dialect of its kind; `uops fuzz FILE` asks its oracle again. The header's `opts` are
the sample's: null or missing if the oracle draws them. `choices` draw the call of a Tensor method, or a session, again: the program
is then that which the front end makes of it now. A *packet* carries a sample to another process, as a JSON header and a binary
body.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from uops.backends.answer import collect_caller_input_nodes
from uops.backends.arrays import decode_arrays, encode_arrays
from uops.backends.conformance.judge import bits_of
from uops.backends.testing.sparse import is_sparse, list_nonzero_runs
from uops.fuzz.generate.draw import CheckedReplayDraw
from uops.fuzz.generate.kinds import (
    KINDS,
    ProgramSample,
    generate_sample_of_supported_cells_else_first,
    select_graph_inputs,
)
from uops.fuzz.generate.schedules import find_unreadable_part
from uops.fuzz.oracles.oracles import GENERATOR, NUMPY, ORACLES, PROCESS, SESSIONS
from uops.fuzz.reduce import corpus
from uops.spec.errors import SpecError
from uops.spec.ir.text import name_nodes, parse, show
from uops.spec.untrusted import describe_path, escape_unprintable, write_text
from uops.spec.verify.dialects import Dialect
from uops.spec.verify.verifier import verify

Json = dict[str, Any]


class Reproducer(NamedTuple):
    """A sample, and how it was found: `about` has at least `oracle`, `setup`, `seed` and `kind`."""

    sample: ProgramSample
    about: Json


def format_reproducer(r: Reproducer) -> str:
    """Return the text of the file."""
    about = r.about | {"kind": r.sample.kind, "opts": r.sample.opts}
    if r.sample.choices is not None and about.get("oracle") in (NUMPY, SESSIONS):
        about["choices"] = list(r.sample.choices)
    lines = [corpus.HEADER + json.dumps(about, sort_keys=True)]
    inputs = select_graph_inputs(r.sample.graph, r.sample.inputs)
    lines += [f"; input {k}: {format_elements(v)}".rstrip() for k, v in sorted(inputs.items())]
    return "\n".join([*lines, show(r.sample.graph)])


def write_reproducer(path: Path, r: Reproducer) -> None:
    """Write the file, and its folder if it is missing."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_text(path, format_reproducer(r))


def read_reproducer(path: Path) -> Reproducer:
    """Read a reproducer. Raises SpecError if the file is none, or if its header lacks what asking the oracle again needs."""
    test = corpus.load_file_test(path)
    header = _parse_header_with_line_number(path)
    if header is None:
        raise SpecError(f"{describe_path(path)} has no line {corpus.HEADER.strip()!r}: it is no reproducer")
    line, about = header
    if problem := next(
        chain(
            _yield_missing_or_invalid_header_fields(about, _ABOUT),
            _yield_missing_or_invalid_header_fields(about.get("setup"), _SETUP, "setup."),
        ),
        None,
    ):
        raise _header_error(path, line, problem)
    if part := find_unreadable_part(about.get("opts") or ""):
        raise _header_error(path, line, f"opts: {part!r} is no OptOp of a kernel (`uops.fuzz.generate.schedules`)")
    kind, opts, choices = about.pop("kind"), about.pop("opts", None), about.pop("choices", None)
    if choices is None:
        return Reproducer(ProgramSample(kind, test.graph, test.inputs, opts), about)
    try:
        sample = generate_sample_of_supported_cells_else_first(KINDS[kind], CheckedReplayDraw(choices))
    except (TypeError, ValueError) as e:
        raise _header_error(path, line, f"choices: {e}") from e
    return Reproducer(sample._replace(opts=opts), about)


def read_program_unless_headed(path: Path, backend: str) -> Reproducer | None:
    """Read a TENSOR program with inputs from a file without a header, as `uops.fuzz.generate.strategies` prints it.

    The question of this reproducer is whether the result of `backend` is allowed. Returns None if the file has a header.
    Raises SpecError.
    """
    if _parse_header_with_line_number(path) is not None:
        return None
    test = corpus.load_file_test(path)
    verify(test.graph, Dialect.TENSOR)
    return Reproducer(
        ProgramSample("tensor", test.graph, test.inputs), {"oracle": "allowed", "seed": 0, "setup": {"backend": backend}}
    )


def read_dialect_or_none_without_header(path: Path) -> Dialect | None:
    """Return the dialect of the kind in a reproducer's header, or None for a file without a header. Raises SpecError."""
    header = _parse_header_with_line_number(path)
    if header is None:
        return None
    line, about = header
    if problem := next(_yield_missing_or_invalid_header_fields(about, {"kind": _ABOUT["kind"]}), None):
        raise _header_error(path, line, problem)
    return KINDS[about["kind"]].dialect


# -------------------------------------------------------------------------------------------------------------- the header


class _HeaderField(NamedTuple):
    """The values that a header may hold under a key: one of these types, and one of `allowed_names` if given."""

    types: tuple[type, ...]
    required: bool = False
    allowed_names: Collection[str] | None = None


#: Keys of the header that are read; it may have others.
_ABOUT = {
    "kind": _HeaderField((str,), True, KINDS),
    "opts": _HeaderField((str, type(None))),
    "choices": _HeaderField((list, type(None))),
    "oracle": _HeaderField((str,), True, (*ORACLES, GENERATOR, PROCESS)),
    "seed": _HeaderField((int,), True),
    "setup": _HeaderField((dict,), True),
}
#: Keys of the header's `setup` (`uops.fuzz.campaign.examine.Setup`), which has no others.
_SETUP = {
    "backend": _HeaderField((str,), True),
    "seed": _HeaderField((int,)),
    "kinds": _HeaderField((list,), False, KINDS),
    "oracles": _HeaderField((list,), False, ORACLES),
    "against": _HeaderField((str, type(None))),
    "options": _HeaderField((dict, type(None))),
}


class _HeaderAtLine(NamedTuple):
    """A header, and the number of its line."""

    line: int
    header: Json


def _parse_header_with_line_number(path: Path) -> _HeaderAtLine | None:
    """Return the header and its line number, or None for a file without a header. Raises SpecError."""
    lines = enumerate(corpus.read_program_text(path).splitlines(), 1)
    line, head = next(((n, x) for n, x in lines if x.startswith(corpus.HEADER)), (0, ""))
    if not head:
        return None
    try:
        about = json.loads(head[len(corpus.HEADER) :])
    except (ValueError, RecursionError) as e:
        raise _header_error(path, line, f"it is no JSON: {e}") from e
    if not isinstance(about, dict):
        raise _header_error(path, line, f"it is {_TYPES[type(about)]}, expected an object")
    return _HeaderAtLine(line, about)


def _header_error(path: Path, line: int, problem: str) -> SpecError:
    head = f"{describe_path(path)}, line {line}: the header {corpus.HEADER.strip()!r}"
    return SpecError(f"{head} cannot be used: {escape_unprintable(problem)}", line=line, column=1)


#: Type -> its name in JSON.
_TYPES: dict[type, str] = {
    str: "a string", int: "an integer", float: "a number", bool: "true or false", list: "an array", dict: "an object",
    type(None): "null",
}  # fmt: skip


def _yield_missing_or_invalid_header_fields(
    header_object: Any, fields: Mapping[str, _HeaderField], prefix: str = ""
) -> Iterator[str]:
    """Yield what is wrong with an object of the header, by key. Unknown keys are reported for `setup` alone, which has a
    prefix.
    """
    for name, key in fields.items():
        value = header_object.get(name)
        if name not in header_object:
            if key.required:
                yield f"{prefix}{name} is missing"
        elif type(value) not in key.types:
            yield f"{prefix}{name} is {_TYPES[type(value)]}, expected {' or '.join(_TYPES[t] for t in key.types)}"
        elif key.allowed_names is not None:
            for x in value if isinstance(value, list) else (value,):
                if x not in tuple(key.allowed_names):  # which may be no string
                    yield f"{prefix}{name}: {x!r} is not known; known: {', '.join(key.allowed_names)}"
    if prefix:
        yield from (f"{prefix}{name} is not known; known: {', '.join(fields)}" for name in header_object if name not in fields)


def count_nodes(sample: ProgramSample) -> int:
    """Return the number of nodes that have a line of their own in the text."""
    return len(name_nodes(sample.graph))


def format_elements(value: Any) -> str:
    """Format elements in row-major order: integers as they are, floats by bits. Of sparse arrays, only runs are written."""
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    a = np.asarray(value)
    if is_sparse(a):
        return " ".join(f"at {first} {format_elements(run)}" for first, run in list_nonzero_runs(a)) or "at 0"
    if a.dtype.kind in "biuO":
        return " ".join(str(int(v)) for v in a.reshape(-1))
    digits = 2 * a.dtype.itemsize
    return " ".join(f"0x{int(v):0{digits}x}" for v in bits_of(a).reshape(-1))


def to_packet(sample: ProgramSample) -> tuple[Json, bytes]:
    """Encode a sample as a JSON header and a binary body."""
    sparse = {k: v for k, v in sample.inputs.items() if is_sparse(v)}
    header, body = encode_arrays({k: v for k, v in sample.inputs.items() if k not in sparse})
    runs = {k: [v.shape, format_elements(v)] for k, v in sparse.items()}
    choices = sample.choices and list(sample.choices)
    fields = {"kind": sample.kind, "text": show(sample.graph), "opts": sample.opts, "choices": choices}
    return {**fields, "inputs": header, "sparse": runs}, body


def from_packet(header: Mapping[str, Any], body: bytes) -> ProgramSample:
    """Decode a sample. Raises LookupError, TypeError, BadFrame or SpecError."""

    choices, graph = header.get("choices"), parse(header["text"])
    inputs = decode_arrays(header["inputs"], body)
    leaves = collect_caller_input_nodes(graph)
    for name, (shape, elements) in header["sparse"].items():
        inputs[name] = corpus.parse_array(elements.split(), leaves[name].dtype, tuple(shape))
    return ProgramSample(header["kind"], graph, inputs, header["opts"], None if choices is None else tuple(choices))
