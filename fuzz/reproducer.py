"""A failing program as one file: a `.uops` text with its inputs, and what to do with it.

    ; uops fuzz: {...}                 the oracle, the backend, the seed, versions, and what was found, as JSON
    ; input p0: 0x3f800000 0x7fc00000  as in file tests (`uops.fuzz.corpus`): floats by bits
    %0 = ...

`write` and `read` are inverse. `uops run FILE` evaluates it on its inputs, `uops fuzz FILE` asks its oracle again. A *packet* is
the same for another process: a JSON header and a binary body.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from uops.backends.arrays import decode, encode
from uops.backends.conformance.judge import bits_of
from uops.fuzz import corpus
from uops.fuzz.kinds import Sample
from uops.spec.errors import SpecError
from uops.spec.text import number, show

Json = dict[str, Any]
_HEAD = "; uops fuzz: "


class Reproducer(NamedTuple):
    """A sample, and how it was found: `about` has at least `oracle` and `setup`, `seed` and `kind`."""

    sample: Sample
    about: Json


def text(r: Reproducer) -> str:
    """The file."""
    about = r.about | {"kind": r.sample.kind, "opts": r.sample.opts}
    head = [_HEAD + json.dumps(about, sort_keys=True)]
    head += [f"; input {k}: {_words(v)}".rstrip() for k, v in sorted(r.sample.inputs.items())]
    return "\n".join([*head, show(r.sample.graph)])


def write(path: Path, r: Reproducer) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text(r), encoding="utf-8")


def read(path: Path) -> Reproducer:
    """Raises SpecError where the file is none."""
    test = corpus.load(path)
    head = next((x for x in path.read_text(encoding="utf-8").splitlines() if x.startswith(_HEAD)), None)
    if head is None:
        raise SpecError(f"{path} has no line {_HEAD.strip()!r}: it is no reproducer")
    about = json.loads(head[len(_HEAD) :])
    return Reproducer(Sample(about.pop("kind"), test.graph, test.inputs, about.pop("opts")), about)


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
    from uops.spec.text import parse

    return Sample(header["kind"], parse(header["text"]), decode(header["inputs"], body), header["opts"])
