"""Each OptOp that changes a loop has laws, and the ledger has their proofs."""

from dataclasses import fields

from uops.compiler.prove import optops
from uops.compiler.prove.admission import is_rule_in_ledger
from uops.spec.optops import OPTOPS


def test_every_optop_has_its_laws() -> None:
    missing = [o.__name__ for o in OPTOPS if fields(o) and not optops.LAWS[o]]
    assert not missing, f"compiler/prove/optops.py: LAWS states nothing of {', '.join(missing)}"
    assert {law for laws in optops.LAWS.values() for law in laws} <= set(optops.RULES)


def test_every_law_is_proved() -> None:
    missing = [law.name for law in optops.RULES if not is_rule_in_ledger(law)]
    assert not missing, f"compiler/prove/ledger.jsonl: run `uops prove`, which has not proved {', '.join(missing)}"
