"""Proved rules beyond the default sets, by theme.

They are for expressions that the front end does not make by itself: hand-written index arithmetic, conditions on conditions,
machine integers. On kernels of the front end they save few nodes (below one in 300) and cost some time in each process, so that a
Rewriter has to ask for them: `Rewriter((*VALUES, *FURTHER))`.
"""

from uops.compiler.prove.admission import admitted
from uops.compiler.rewrite.rule import Rule
from uops.compiler.rewrite.rules import choices, comparisons, rings

THEMES: dict[str, tuple[Rule, ...]] = {
    "comparisons": comparisons.RULES,
    "rings": rings.RULES,
    "choices": choices.RULES,
}
FURTHER: tuple[Rule, ...] = admitted(rule for rules in THEMES.values() for rule in rules)
