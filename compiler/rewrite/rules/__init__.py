"""The rewrite rules, one module per theme; each rule is sound alone, so that their order affects quality only (STYLE 9).

A rule that the ledger does not hold as proved, as it is, is left out of the sets, with a warning: `uops prove` proves it.
"""

from uops.compiler.prove.admission import admitted
from uops.compiler.rewrite.rule import Rule
from uops.compiler.rewrite.rules import booleans, casts, divisions, folding, index, integers, where

#: For index expressions and conditions, while ranges are pushed through movement ops.
INDEXING: tuple[Rule, ...] = admitted(
    (*folding.RULES, *index.RULES, *divisions.RULES, *integers.RULES, *booleans.RULES, *where.RULES, *casts.RULES)
)
#: For the values of kernels, before and after instruction selection.
VALUES: tuple[Rule, ...] = INDEXING

THEMES: dict[str, tuple[Rule, ...]] = {
    "folding": folding.RULES,
    "index": index.RULES,
    "divisions": divisions.RULES,
    "integers": integers.RULES,
    "booleans": booleans.RULES,
    "where": where.RULES,
    "casts": casts.RULES,
}
