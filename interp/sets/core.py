from __future__ import annotations
from uops.interp.sets.rules import STRICT, Rules
def rules_of(level: str, ftz: bool) -> Rules:
    return STRICT
