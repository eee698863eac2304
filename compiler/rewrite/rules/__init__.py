"""Rewrite rules, one module per theme. Each rule is sound alone, so that their order affects quality only (STYLE 9).

A rule is left out of the sets, with a warning, unless the ledger holds it as proved in its present form. `uops prove` proves it.
"""

from uops.compiler.prove.admission import select_proved_rules_and_warn
from uops.compiler.rewrite.rule import Rule
from uops.compiler.rewrite.rules import booleans, casts, divisions, folding, index, integers, where

#: Rules for index expressions and conditions, while ranges are pushed through movement ops.
INDEXING: tuple[Rule, ...] = select_proved_rules_and_warn(
    (*folding.RULES, *index.RULES, *divisions.RULES, *integers.RULES, *booleans.RULES, *where.RULES, *casts.RULES)
)
#: Rules for the values of kernels, before instruction selection.
VALUES: tuple[Rule, ...] = INDEXING
#: Rules for the values of kernels after it: those that give index arithmetic are left out, as counters have machine widths (R08).
SELECTED_VALUES: tuple[Rule, ...] = tuple(r for r in VALUES if r.name not in ("cast-sum", "cast-difference"))

THEMES: dict[str, tuple[Rule, ...]] = {
    "folding": folding.RULES,
    "index": index.RULES,
    "divisions": divisions.RULES,
    "integers": integers.RULES,
    "booleans": booleans.RULES,
    "where": where.RULES,
    "casts": casts.RULES,
}
