"""The ledger: what was proved of which rule, by which queries.

A committed file. It begins with an index, sealed by the line before it, which is all that an import reads
(`uops.compiler.prove.admission`): the digests of all proved rules, and the number and the SHA-256 of the lines that follow. These
are JSON, one per rule, sorted by name: its structural `digest`, what became of each obligation as [typing, key, status, by], and
the status of the whole. A key is the SHA-256 of the texts of an obligation's queries with their limits, in the plan that proved it,
and of the solver's version; an obligation with a plan of that key need not be proved again. Only a rule all of whose obligations
are proved is `proved`.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from uops.compiler.prove.admission import ANEW, INDEX, SCHEMA, Unreadable, index
from uops.compiler.prove.obligations import Plan
from uops.compiler.prove.verdicts import Status, Verdict
from uops.spec.ir.record import dataclass
from uops.spec.untrusted import BadFile, describe_path, parse_json, read_text, seal, write_bytes

#: The committed ledger.
PATH = Path(__file__).with_name("ledger.jsonl")
#: A rule's status is the worst of its obligations'.
_WORST = (Status.REFUTED, Status.UNMODELLED, Status.UNKNOWN, Status.VACUOUS, Status.PROVED)


@dataclass(frozen=True, slots=True)
class Entry:
    """One obligation's line: where (the typing), the key of its queries, what became of it, and by which theory."""

    at: str
    key: str
    status: Status
    by: str


@dataclass(frozen=True, slots=True)
class Page:
    """All of one rule."""

    rule: str
    digest: str
    entries: tuple[Entry, ...]

    @property
    def status(self) -> Status:
        found = {e.status for e in self.entries}
        return next((s for s in _WORST if s in found), Status.UNMODELLED)


def key(p: Plan, solver: str) -> str:
    """The key of a plan under a solver."""
    return hashlib.sha256(f"{solver}\n{p.key}".encode()).hexdigest()


def entry(v: Verdict, solver: str) -> Entry:
    """The entry of a verdict; one that is not proved has no key."""
    return Entry(v.obligation.at, "" if v.plan is None else key(v.plan, solver), v.status, v.by)


def read(path: Path = PATH) -> dict[str, Page]:
    """The pages by rule; none where there is no file. Raises Unreadable where the file is not as it was written, BadFile and
    OSError."""
    if not path.exists():
        return {}
    header, sealed, *lines = read_text(path).split("\n") + [""]
    known = index(f"{header}\n{sealed}", path)
    text = "\n".join(lines[:-1])
    if known["sha256"] != hashlib.sha256(text.encode()).hexdigest():
        count = text.count("\n")
        raise Unreadable(f"{describe_path(path)} is damaged: it has {count} of {known['pages']} pages, or some differ. {ANEW}")
    pages = (_page(line, f"{describe_path(path)}:{number}") for number, line in enumerate(lines[:-2], 3))
    return {p.rule: p for p in pages}


def _page(text: str, place: str) -> Page:
    try:
        line = parse_json(text, place)
        entries = tuple(Entry(str(at), str(k), Status(status), str(by)) for at, k, status, by in line["obligations"])
        return Page(str(line["rule"]), str(line["digest"]), entries)
    except BadFile:
        raise
    except (ValueError, KeyError, TypeError) as e:
        raise Unreadable(f"{place} is no page of a ledger: {type(e).__name__}: {e}. {ANEW}") from e


def write(pages: Iterable[Page], path: Path = PATH) -> None:
    """Replace the file, atomically. Raises OSError, and leaves it as it was."""
    ordered = sorted(pages, key=lambda p: p.rule)
    proved = {p.rule: p.digest for p in ordered if p.status is Status.PROVED and p.digest}
    text = "".join(_line(p) + "\n" for p in ordered)
    known = {"proved": proved, "pages": len(ordered), "sha256": hashlib.sha256(text.encode()).hexdigest()}
    write_bytes(path, seal(INDEX, SCHEMA, "", json.dumps(known).encode()) + f"\n{text}".encode())


def _line(p: Page) -> str:
    entries = [[e.at, e.key, e.status.value, e.by] for e in p.entries]
    return json.dumps({"rule": p.rule, "status": p.status.value, "digest": p.digest, "obligations": entries}, ensure_ascii=False)


def proved(pages: Mapping[str, Page]) -> dict[str, Entry]:
    """Proved entries by key; what has another status is tried again."""
    return {e.key: e for p in pages.values() for e in p.entries if e.status is Status.PROVED}


def page(rule: str, digest: str, entries: Sequence[Entry]) -> Page:
    """The page of a rule, its entries in the order of their typings."""
    return Page(rule, digest, tuple(sorted(entries, key=lambda e: e.at)))
