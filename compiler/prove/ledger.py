"""The ledger: a committed file with the rules that are proved, and the queries that prove them.

The first line seals the second, which is an index. An import reads the index alone (`uops.compiler.prove.admission`). It holds
the digests of all proved rules, and the number and the SHA-256 of the lines that follow. Each of these is one rule as JSON,
sorted by name: its structural `digest`, its obligations as [typing, key, status, by], and its status. A rule is `proved` if all
its obligations are.

A key is the SHA-256 of the texts and limits of a plan's queries, and of the solver's version. An obligation with a plan of a
known key need not be proved again.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from uops.compiler.prove.admission import ANEW, INDEX, SCHEMA, UnreadableLedger, parse_ledger_index
from uops.compiler.prove.obligations import ProofPlan
from uops.compiler.prove.verdicts import ProofStatus, ProofVerdict
from uops.spec.ir.record import dataclass
from uops.spec.untrusted import BadFile, describe_path, parse_json, read_text, seal, write_bytes

#: The committed ledger.
PATH = Path(__file__).with_name("ledger.jsonl")
#: Statuses, worst first.
_WORST = (ProofStatus.REFUTED, ProofStatus.UNMODELLED, ProofStatus.UNKNOWN, ProofStatus.VACUOUS, ProofStatus.PROVED)


@dataclass(frozen=True, slots=True)
class LedgerEntry:
    """The line of one obligation: its typing, the key of its queries, its status, and the theory that decided it."""

    typing: str
    key: str
    status: ProofStatus
    by: str


@dataclass(frozen=True, slots=True)
class LedgerPage:
    """All obligations of one rule."""

    rule: str
    digest: str
    entries: tuple[LedgerEntry, ...]

    @property
    def status(self) -> ProofStatus:
        """The worst status of the obligations."""
        statuses = {e.status for e in self.entries}
        return next((s for s in _WORST if s in statuses), ProofStatus.UNMODELLED)


def plan_key(p: ProofPlan, solver: str) -> str:
    """Return the key of a plan for a version of the solver."""
    return hashlib.sha256(f"{solver}\n{p.key}".encode()).hexdigest()


def entry_from_verdict(v: ProofVerdict, solver: str) -> LedgerEntry:
    """Return the ledger entry of a verdict; only a proved one has a key."""
    return LedgerEntry(v.obligation.typing, "" if v.plan is None else plan_key(v.plan, solver), v.status, v.by)


def read_ledger(path: Path = PATH) -> dict[str, LedgerPage]:
    """Return the pages by rule; an empty dict if there is no file.

    Raises UnreadableLedger if the file differs from what was written, BadFile and OSError.
    """
    if not path.exists():
        return {}
    header, sealed, *lines = read_text(path).split("\n") + [""]
    index = parse_ledger_index(f"{header}\n{sealed}", path)
    text = "\n".join(lines[:-1])
    if index["sha256"] != hashlib.sha256(text.encode()).hexdigest():
        count = text.count("\n")
        raise UnreadableLedger(
            f"{describe_path(path)} is damaged: it has {count} of {index['pages']} pages, or some differ. {ANEW}"
        )
    pages = (_parse_page(line, f"{describe_path(path)}:{number}") for number, line in enumerate(lines[:-2], 3))
    return {p.rule: p for p in pages}


def _parse_page(text: str, location: str) -> LedgerPage:
    """Parse one line of the ledger. Raises UnreadableLedger and BadFile."""
    try:
        line = parse_json(text, location)
        entries = tuple(LedgerEntry(str(at), str(k), ProofStatus(status), str(by)) for at, k, status, by in line["obligations"])
        return LedgerPage(str(line["rule"]), str(line["digest"]), entries)
    except BadFile:
        raise
    except (ValueError, KeyError, TypeError) as e:
        raise UnreadableLedger(f"{location} is no page of a ledger: {type(e).__name__}: {e}. {ANEW}") from e


def write_ledger(pages: Iterable[LedgerPage], path: Path = PATH) -> None:
    """Replace the file atomically. On an OSError the old file stays."""
    ordered = sorted(pages, key=lambda p: p.rule)
    proved = {p.rule: p.digest for p in ordered if p.status is ProofStatus.PROVED and p.digest}
    text = "".join(_format_page(p) + "\n" for p in ordered)
    index = {"proved": proved, "pages": len(ordered), "sha256": hashlib.sha256(text.encode()).hexdigest()}
    write_bytes(path, seal(INDEX, SCHEMA, "", json.dumps(index).encode()) + f"\n{text}".encode())


def _format_page(p: LedgerPage) -> str:
    """Return a page as one line of JSON."""
    entries = [[e.typing, e.key, e.status.value, e.by] for e in p.entries]
    return json.dumps({"rule": p.rule, "status": p.status.value, "digest": p.digest, "obligations": entries}, ensure_ascii=False)


def index_proved_entries(pages: Mapping[str, LedgerPage]) -> dict[str, LedgerEntry]:
    """Return the proved entries by key."""
    return {e.key: e for p in pages.values() for e in p.entries if e.status is ProofStatus.PROVED}


def make_page(rule: str, digest: str, entries: Sequence[LedgerEntry]) -> LedgerPage:
    """Return the page of a rule, with its entries sorted by typing."""
    return LedgerPage(rule, digest, tuple(sorted(entries, key=lambda e: e.typing)))
