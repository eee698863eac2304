"""Proved rules beyond the default sets, by theme.

They simplify expressions that the front end does not build by itself: hand-written index arithmetic, conditions on conditions, and
machine integers. On kernels of the front end they save few nodes (fewer than one in 300) and cost some time in each process. A
Rewriter uses them only if they are passed: `Rewriter((*VALUES, *FURTHER))`.
"""

from uops.compiler.prove.admission import select_proved_rules_and_warn
from uops.compiler.rewrite.rule import Rule
from uops.compiler.rewrite.rules import choices, comparisons, rings

THEMES: dict[str, tuple[Rule, ...]] = {
    "comparisons": comparisons.RULES,
    "rings": rings.RULES,
    "choices": choices.RULES,
}
FURTHER: tuple[Rule, ...] = select_proved_rules_and_warn(rule for rules in THEMES.values() for rule in rules)
