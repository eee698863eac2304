"""Every rule of the default set is proved in its present form, for the dtypes that there are; no solver is loaded."""

import warnings

from uops.compiler.prove.admission import UnprovedRule, is_rule_in_ledger

with warnings.catch_warnings():
    warnings.simplefilter("ignore", UnprovedRule)  # the test names the rules
    from uops.compiler.rewrite.rules import THEMES
    from uops.compiler.rewrite.rules.further import THEMES as FURTHER_THEMES


def test_the_ledger_proves_every_rule_as_it_is() -> None:
    unproved = [
        r.name for themes in (THEMES, FURTHER_THEMES) for rules in themes.values() for r in rules if not is_rule_in_ledger(r)
    ]
    assert not unproved, f"compiler/prove/ledger.jsonl: `uops prove` has not proved {', '.join(unproved)} as they are"
