"""The suite's cases, generated from the rows of the specification."""

from __future__ import annotations

import fnmatch
from collections.abc import Iterator

from uops.backends.conformance.cases import elementwise, folding, movement, programs, reduce
from uops.backends.conformance.model import Case, Tier

SOURCES = (programs.cases, movement.cases, reduce.cases, elementwise.cases, folding.cases)


def cases(tier: Tier, rows: str = "*") -> Iterator[Case]:
    """Every case of `tier` whose row id matches the glob `rows`, in the suite's order."""
    for source in SOURCES:
        yield from (c for c in source(tier) if fnmatch.fnmatchcase(c.row, rows))
