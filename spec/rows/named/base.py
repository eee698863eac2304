"""The type of a row that is no op, its claims, and the names of what executes a row."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

#: A claim without its id: its text, and the ruling that it rests on or "".
Statement = tuple[str, str]


class RowSubject(Enum):
    """The part that conformance cells of a row judge. A failed cell counts against it and against nothing else.

    Optional rows (R188) judge a backend apart from its conformance.
    """

    BACKEND = "backend"
    FRONT_END = "front end"
    COMPILER = "compiler"
    SPECIFICATION = "specification"
    OPTIONAL = "optional rows"


@dataclass(frozen=True, slots=True)
class ExecutedBy:
    """The names of what executes a row in the interpreter, and in the compiler with its backends.

    A name is `module:attribute`, where the attribute may be a function, a class, a method (`Class.method`) or an entry of a table
    (`TABLE[KEY]`). They are text, since the specification imports neither side; a test resolves each. `missing` says why a side
    has none.
    """

    interp: tuple[str, ...] = ()
    compiler: tuple[str, ...] = ()
    missing: str = ""

    def to_json(self) -> dict[str, Any]:
        """Return the names as JSON."""
        return {"interp": list(self.interp), "compiler": list(self.compiler), "missing": self.missing or None}


@dataclass(frozen=True, slots=True)
class StatedClaim:
    """A claim on what a row means, which no single node can break. The fields are those of `Claim` but for the check."""

    id: str
    text: str
    spec: str
    ruling: str = ""


@dataclass(frozen=True, slots=True)
class NamedRow:
    """A row of the specification that is no op.

    `tinyspec` and `bestiary` are the names printed in those documents, or None; a row without either is an extension. `columns`
    are the further columns of the table that it stands in, as plain data.
    """

    id: str
    tinyspec: str | None
    bestiary: str | None
    semantics: str
    claims: tuple[StatedClaim, ...]
    executed_by: ExecutedBy
    subject: RowSubject
    columns: Mapping[str, Any] = field(default_factory=dict)

    @property
    def family(self) -> str:
        """The family: the part of the id before the slash."""
        return self.id.partition("/")[0]

    @property
    def name(self) -> str:
        """The part of the id after the slash."""
        return self.id.partition("/")[2]

    @property
    def document(self) -> str:
        """The document that has the row: "tinyspec", "bestiary", "both" or "extension"."""
        if self.tinyspec is None:
            return "extension" if self.bestiary is None else "bestiary"
        return "tinyspec" if self.bestiary is None else "both"


def state_claims(row_id: str, statements: Iterable[Statement]) -> tuple[StatedClaim, ...]:
    """Return the statements as the claims of a row: `AXISTYPE.LOOP.C1`, `AXISTYPE.LOOP.C2` and so on for `AxisType/LOOP`."""
    prefix = row_id.replace("/", ".").upper()
    return tuple(StatedClaim(f"{prefix}.C{k}", text, row_id, ruling) for k, (text, ruling) in enumerate(statements, 1))


def write_as_sentence(phrase: str) -> str:
    """Return a phrase of a table with a capital and a full stop."""
    return f"{phrase[0].upper()}{phrase[1:].rstrip('.')}."
