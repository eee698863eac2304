"""Only proved rules fire: the rules of a table that the ledger holds as proved, as they are now.

`digest(rule)` is structural: names, ops, literals, dtypes and condition of a rule, and the name of the code that it asks (witness
and relation of types). A rule that was changed has another digest than the page that proves it, and is not admitted until it is
proved again. What the named code does to the obligations of a rule is compared by `uops prove` and by the tests, which make every
query anew. Importing this module loads neither the solver nor the prover.
"""

from __future__ import annotations

import hashlib
import json
import warnings
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from uops.spec.dtypes import DType

if TYPE_CHECKING:
    from uops.compiler.pattern import Pattern
    from uops.compiler.rewrite import Rule

_LEDGER = Path(__file__).with_name("ledger.jsonl")


class UnprovedRule(UserWarning):
    """A rule of a default set does not fire, because no proof of it is in the ledger."""


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


@cache
def _proved() -> dict[str, str]:
    """The digests of the proved rules, by name: the first line of the ledger, as the rest would cost every import."""
    if not _LEDGER.is_file():
        return {}
    with _LEDGER.open() as lines:
        found: dict[str, str] = json.loads(lines.readline())["proved"]
    return found


def is_proved(rule: Rule) -> bool:
    """Whether the ledger proves this rule, as it is."""
    return _proved().get(rule.name) == digest(rule)


def admitted(rules: Iterable[Rule]) -> tuple[Rule, ...]:
    """The proved ones among `rules`, in order; warns of every other one."""
    found = []
    for rule in rules:
        if is_proved(rule):
            found.append(rule)
        else:
            warnings.warn(f"rule {rule.name} does not fire: `uops prove` has not proved it as it is", UnprovedRule, stacklevel=2)
    return tuple(found)
