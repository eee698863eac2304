"""Only proved rules fire: the rules of a table that the ledger holds as proved, as they are now.

`digest(rule)` is structural: names, ops, literals, dtypes and condition of a rule, and the name of the code that it asks (witness
and relation of types). A rule that was changed has another digest than the page that proves it, and is not admitted until it is
proved again. What the named code does to the obligations of a rule is compared by `uops prove` and by the tests, which make every
query anew. Importing this module loads neither the solver nor the prover.
"""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from uops.spec.errors import UopsError
from uops.spec.ir.dtypes import DType
from uops.spec.untrusted import BadFile, Damaged, describe_path, parse_json, unseal

if TYPE_CHECKING:
    from uops.compiler.rewrite.pattern import Pattern
    from uops.compiler.rewrite.rule import Rule

_LEDGER = Path(__file__).with_name("ledger.jsonl")
#: What the index of a ledger is sealed as, and its format.
INDEX, SCHEMA = "ledger", 2
#: Bytes of the index, at most.
_MOST_BYTES = 1 << 22


class UnprovedRule(UserWarning):
    """A rule of a default set does not fire, because no proof of it is in the ledger."""


class DamagedLedger(UserWarning):
    """No rule fires, because the ledger is not as it was written."""


class Unreadable(UopsError):
    """A file is no ledger, or is damaged."""


def digest(rule: Rule) -> str:
    """SHA-256 of the structure of a rule."""
    parts = [rule.name, _spelt(rule.lhs), _spelt(rule.rhs), "" if rule.when is None else _spelt(rule.when)]
    form: Pattern | None = getattr(rule.witness, "evaluates", None)
    parts.append("" if form is None else _spelt(form))
    parts.append("" if rule.types is None else rule.types.__qualname__ if hasattr(rule.types, "__qualname__") else "relation")
    if rule.assumes is not None:
        parts.append(f"{rule.assumes}\n{'' if rule.assumes.values is None else _spelt(rule.assumes.values)}")
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()


def _spelt(p: Pattern) -> str:
    """A pattern as text that tells apart all that matching and instantiating tell apart."""
    if p.name is not None:
        return f"{'c' if p.constant else 'v'}:{p.name}:{_names(p.dtypes)}"
    if p.op is None:
        return f"{type(p.value).__name__}:{p.value!r}"
    to = "" if p.to is None else f":{p.to.name}" if isinstance(p.to, DType) else f":{p.to.name}:{_names(p.to.among)}"
    return f"({p.op.name}{to} {' '.join(map(_spelt, p.src))})"


@cache
def _names(dtypes: tuple[DType, ...]) -> str:
    return ",".join(d.short for d in dtypes)


def index(text: str, path: Path) -> dict[str, Any]:
    """The index of a ledger, from its first two lines. Raises Unreadable."""
    try:
        found = parse_json(unseal(INDEX, SCHEMA, "", text.encode(errors="surrogateescape")), f"{describe_path(path)}:2")
        digests = dict[str, str](found["proved"])
        return {"proved": digests, "pages": int(found["pages"]), "sha256": str(found["sha256"])}
    except (Damaged, BadFile, KeyError, TypeError, ValueError) as e:
        raise Unreadable(f"{describe_path(path)} is no ledger, or is damaged: its index is not as it was written. {ANEW}") from e


#: What to do about a damaged ledger.
ANEW = "Restore it, or let `uops prove --cold` prove all rules anew"


@cache
def _proved() -> dict[str, str] | None:
    """The digests of the proved rules, by name: the index of the ledger, as the rest would cost every import. Where it is damaged,
    None, with a warning; where there is none, nothing is proved."""
    try:
        with _LEDGER.open(encoding="utf-8", errors="surrogateescape", newline="\n") as lines:
            found: dict[str, str] = index(lines.readline(_MOST_BYTES) + lines.readline(_MOST_BYTES).rstrip("\n"), _LEDGER)["proved"]
    except FileNotFoundError:
        return {}
    except (Unreadable, OSError) as e:
        warnings.warn(f"no rewrite rule fires: {e}", DamagedLedger, stacklevel=2)
        return None
    return found


def is_proved(rule: Rule) -> bool:
    """Whether the ledger proves this rule, as it is."""
    return (_proved() or {}).get(rule.name) == digest(rule)


def admitted(rules: Iterable[Rule]) -> tuple[Rule, ...]:
    """The proved ones among `rules`, in order; warns of every other one, or once of a damaged ledger."""
    found = []
    for rule in rules:
        if is_proved(rule):
            found.append(rule)
        elif _proved() is not None:
            warnings.warn(f"rule {rule.name} does not fire: `uops prove` has not proved it as it is", UnprovedRule, stacklevel=2)
    return tuple(found)
