"""A failing program as one file: a `.uops` text with its inputs, and what to do with it.

    ; uops fuzz: {...}                 the oracle, the backend, the seed, versions, and what was found, as JSON
    ; input p0: 0x3f800000 0x7fc00000  as in file tests (`uops.fuzz.reduce.corpus`): floats by bits
    %0 = ...

`write` and `read` are inverse, but for inputs that the program does not take. `uops run FILE` evaluates it on its inputs, in the
dialect of its kind; `uops fuzz FILE` asks its oracle again. The header's `opts` are the sample's: null, or no `opts`, where the
oracle draws. A *packet* is the same for another process: a JSON header and a binary body.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from uops.backends.arrays import decode, encode
from uops.backends.conformance.judge import bits_of
from uops.fuzz.generate.kinds import KINDS, Sample, taken
from uops.fuzz.generate.schedules import unreadable
from uops.fuzz.oracles.oracles import GENERATOR, ORACLES, PROCESS
from uops.fuzz.reduce import corpus
from uops.spec.errors import SpecError
from uops.spec.ir.text import number, show
from uops.spec.untrusted import describe_path, printable, write_text
from uops.spec.verify.dialects import Dialect
from uops.spec.verify.verifier import verify

Json = dict[str, Any]


class Reproducer(NamedTuple):
    """A sample, and how it was found: `about` has at least `oracle` and `setup`, `seed` and `kind`."""

    sample: Sample
    about: Json


def text(r: Reproducer) -> str:
    """The file."""
    about = r.about | {"kind": r.sample.kind, "opts": r.sample.opts}
    head = [corpus.HEADER + json.dumps(about, sort_keys=True)]
    inputs = taken(r.sample.graph, r.sample.inputs)
    head += [f"; input {k}: {_words(v)}".rstrip() for k, v in sorted(inputs.items())]
    return "\n".join([*head, show(r.sample.graph)])


def write(path: Path, r: Reproducer) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    write_text(path, text(r))


def read(path: Path) -> Reproducer:
    """Raises SpecError where the file is none, or where its header has not what it takes to ask again."""
    test = corpus.load(path)
    found = _header(path)
    if found is None:
        raise SpecError(f"{describe_path(path)} has no line {corpus.HEADER.strip()!r}: it is no reproducer")
    line, about = found
    if wrong := next(chain(_wrong(about, _ABOUT), _wrong(about.get("setup"), _SETUP, "setup.")), None):
        raise _unusable(path, line, wrong)
    if part := unreadable(about.get("opts") or ""):
        raise _unusable(path, line, f"opts: {part!r} is no OptOp of a kernel (`uops.fuzz.generate.schedules`)")
    return Reproducer(Sample(about.pop("kind"), test.graph, test.inputs, about.pop("opts", None)), about)


def of_plain(path: Path, backend: str) -> Reproducer | None:
    """A TENSOR program with inputs whose file does not say how it was found, as `uops.fuzz.generate.strategies` print them: is what
    this backend gives allowed? None of a file with a header. Raises SpecError."""
    if _header(path) is not None:
        return None
    test = corpus.load(path)
    verify(test.graph, Dialect.TENSOR)
    return Reproducer(Sample("tensor", test.graph, test.inputs), {"oracle": "allowed", "seed": 0, "setup": {"backend": backend}})


def dialect_of(path: Path) -> Dialect | None:
    """The dialect of the kind that a reproducer's header names; None of a file without a header. Raises SpecError."""
    found = _header(path)
    if found is None:
        return None
    line, about = found
    if wrong := next(_wrong(about, {"kind": _ABOUT["kind"]}), None):
        raise _unusable(path, line, wrong)
    return KINDS[about["kind"]].dialect


# -------------------------------------------------------------------------------------------------------------- the header


class _Key(NamedTuple):
    """What a header may hold under a key: one of these types, and where `known` is given, of these names."""

    types: tuple[type, ...]
    needed: bool = False
    known: Collection[str] | None = None


#: Keys of the header that are read, and of its `setup` (`uops.fuzz.campaign.examine.Setup`), which has no others.
_ABOUT = {
    "kind": _Key((str,), True, KINDS),
    "opts": _Key((str, type(None))),
    "oracle": _Key((str,), True, (*ORACLES, GENERATOR, PROCESS)),
    "seed": _Key((int,), True),
    "setup": _Key((dict,), True),
}
_SETUP = {
    "backend": _Key((str,), True),
    "seed": _Key((int,)),
    "kinds": _Key((list,), False, KINDS),
    "oracles": _Key((list,), False, ORACLES),
    "against": _Key((str, type(None))),
    "options": _Key((dict, type(None))),
}


def _header(path: Path) -> tuple[int, Json] | None:
    """The header and its line; None of a file without one. Raises SpecError."""
    lines = enumerate(corpus.text_of(path).splitlines(), 1)
    line, head = next(((n, x) for n, x in lines if x.startswith(corpus.HEADER)), (0, ""))
    if not head:
        return None
    try:
        about = json.loads(head[len(corpus.HEADER) :])
    except (ValueError, RecursionError) as e:
        raise _unusable(path, line, f"it is no JSON: {e}") from e
    if not isinstance(about, dict):
        raise _unusable(path, line, f"it is {_TYPES[type(about)]}, expected an object")
    return line, about


def _unusable(path: Path, line: int, wrong: str) -> SpecError:
    head = f"{describe_path(path)}, line {line}: the header {corpus.HEADER.strip()!r}"
    return SpecError(f"{head} cannot be used: {printable(wrong)}", line=line, column=1)


#: Types as JSON calls them.
_TYPES: dict[type, str] = {
    str: "a string", int: "an integer", float: "a number", bool: "true or false", list: "an array", dict: "an object",
    type(None): "null",
}  # fmt: skip


def _wrong(found: Any, keys: Mapping[str, _Key], place: str = "") -> Iterator[str]:
    """What is wrong with an object of the header, by key; of `setup`, keys that it does not have, too."""
    for name, key in keys.items():
        value = found.get(name)
        if name not in found:
            if key.needed:
                yield f"{place}{name} is missing"
        elif type(value) not in key.types:
            yield f"{place}{name} is {_TYPES[type(value)]}, expected {' or '.join(_TYPES[t] for t in key.types)}"
        elif key.known is not None:
            for x in value if isinstance(value, list) else (value,):
                if x not in tuple(key.known):  # which may be no string
                    yield f"{place}{name}: {x!r} is not known; known: {', '.join(key.known)}"
    if place:
        yield from (f"{place}{name} is not known; known: {', '.join(keys)}" for name in found if name not in keys)


def size(sample: Sample) -> int:
    """Nodes with a line of their own."""
    return len(number(sample.graph))


def _words(value: Any) -> str:
    """Elements in row-major order: integers as they are, floats by bits."""
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    a = np.asarray(value)
    if a.dtype.kind in "biuO":
        return " ".join(str(int(v)) for v in a.reshape(-1))
    digits = 2 * a.dtype.itemsize
    return " ".join(f"0x{int(v):0{digits}x}" for v in bits_of(a).reshape(-1))


def to_packet(sample: Sample) -> tuple[Json, bytes]:
    header, body = encode(sample.inputs)
    return {"kind": sample.kind, "text": show(sample.graph), "opts": sample.opts, "inputs": header}, body


def from_packet(header: Mapping[str, Any], body: bytes) -> Sample:
    from uops.spec.ir.text import parse

    return Sample(header["kind"], parse(header["text"]), decode(header["inputs"], body), header["opts"])
