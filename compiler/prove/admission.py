"""Admission of proved rules to the default tables.

Takes: rules. Gives: those that the ledger proves in their present form. `digest_rule` covers the structure of a rule: its name,
ops, literals, dtypes and condition, and the name of its type relation. A changed rule has another digest than the page that
proves it, so it is not admitted until it is proved again. The digest does not cover the code of a witness or type relation;
`uops prove` and the tests compare its effect, as they build every query anew. Importing this module loads neither the solver
nor the prover.
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
from uops.spec.untrusted import BadFile, SealMismatch, describe_path, parse_json, unseal

if TYPE_CHECKING:
    from uops.compiler.rewrite.pattern import Pattern
    from uops.compiler.rewrite.rule import Rule

_LEDGER = Path(__file__).with_name("ledger.jsonl")
#: Kind and format version in the seal of a ledger's index.
INDEX, SCHEMA = "ledger", 2
#: Greatest length of each line of the index, in bytes.
_MAX_INDEX_BYTES = 1 << 22


class UnprovedRule(UserWarning):
    """A warning that a rule of a default set does not fire, because the ledger has no proof of it."""


class DamagedLedger(UserWarning):
    """A warning that no rule fires, because the ledger differs from what was written."""


class UnreadableLedger(UopsError):
    """A file that is not a ledger, or a damaged one."""


def digest_rule(rule: Rule) -> str:
    """Return the SHA-256 of the structure of a rule."""
    parts = [
        rule.name,
        _serialize_pattern(rule.lhs),
        _serialize_pattern(rule.rhs),
        "" if rule.when is None else _serialize_pattern(rule.when),
    ]
    evaluated = rule.evaluated_pattern
    parts.append("" if evaluated is None else _serialize_pattern(evaluated))
    parts.append("" if rule.types is None else rule.types.__qualname__ if hasattr(rule.types, "__qualname__") else "relation")
    if rule.assumes is not None:
        parts.append(f"{rule.assumes}\n{'' if rule.assumes.values is None else _serialize_pattern(rule.assumes.values)}")
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()


def _serialize_pattern(p: Pattern) -> str:
    """Return the text of a pattern; patterns that match or instantiate differently have different texts."""
    if p.name is not None:
        return f"{'c' if p.constant else 'v'}:{p.name}:{_join_dtype_names(p.dtypes)}"
    if p.op is None:
        return f"{type(p.value).__name__}:{p.value!r}"
    to = "" if p.to is None else f":{p.to.name}" if isinstance(p.to, DType) else f":{p.to.name}:{_join_dtype_names(p.to.among)}"
    return f"({p.op.name}{to} {' '.join(map(_serialize_pattern, p.src))})"


@cache
def _join_dtype_names(dtypes: tuple[DType, ...]) -> str:
    return ",".join(d.short for d in dtypes)


def parse_ledger_index(first_two_lines: str, ledger_path: Path) -> dict[str, Any]:
    """Parse the first two lines of a ledger: its sealed index. Raises UnreadableLedger."""
    try:
        contents = parse_json(
            unseal(INDEX, SCHEMA, "", first_two_lines.encode(errors="surrogateescape")), f"{describe_path(ledger_path)}:2"
        )
        digests = dict[str, str](contents["proved"])
        return {"proved": digests, "pages": int(contents["pages"]), "sha256": str(contents["sha256"])}
    except (SealMismatch, BadFile, KeyError, TypeError, ValueError, OverflowError) as e:
        raise UnreadableLedger(
            f"{describe_path(ledger_path)} is no ledger, or is damaged: its index differs from what was written. {ANEW}"
        ) from e


#: Advice at the end of every message about a damaged ledger.
ANEW = "Restore it, or let `uops prove --cold` prove all rules anew"


@cache
def _load_proved_digests_or_warn_if_damaged() -> dict[str, str] | None:
    """Read the digests of the proved rules by name, from the index of the ledger alone.

    Returns an empty dict if there is no ledger, and None with a warning if it is damaged. The pages stay unread, as parsing them
    would slow down every import.
    """
    try:
        with _LEDGER.open(encoding="utf-8", errors="surrogateescape", newline="\n") as lines:
            digests: dict[str, str] = parse_ledger_index(
                lines.readline(_MAX_INDEX_BYTES) + lines.readline(_MAX_INDEX_BYTES).rstrip("\n"), _LEDGER
            )["proved"]
    except FileNotFoundError:
        return {}
    except (UnreadableLedger, OSError) as e:
        warnings.warn(f"no rewrite rule fires: {e}", DamagedLedger, stacklevel=2)
        return None
    return digests


def is_rule_in_ledger(rule: Rule) -> bool:
    """Return True if the ledger proves the rule in its present form."""
    return (_load_proved_digests_or_warn_if_damaged() or {}).get(rule.name) == digest_rule(rule)


def select_proved_rules_and_warn(rules: Iterable[Rule]) -> tuple[Rule, ...]:
    """Return the proved rules in order. Warn about each other one, or once about a damaged ledger."""
    admitted = []
    for rule in rules:
        if is_rule_in_ledger(rule):
            admitted.append(rule)
        elif _load_proved_digests_or_warn_if_damaged() is not None:
            warnings.warn(f"rule {rule.name} does not fire: `uops prove` has not proved it as it is", UnprovedRule, stacklevel=2)
    return tuple(admitted)
