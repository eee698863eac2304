"""Backends whose processes have something else wrong with them than a wrong value: `planted_machinery:NAME`."""

from __future__ import annotations

import os
from typing import Any

from planted_backends import Plain

from uops.backends.contract import Inputs
from uops.fuzz import kinds
from uops.spec.node import UOp
from uops.spec.result import Result


class Undrawn(Plain):
    """Every eighth case cannot be made."""

    def __init__(self) -> None:
        drawn = kinds.sample

        def sample(seed: int, k: int, *more: Any) -> kinds.Sample:
            if k % 8 == 3:
                raise ZeroDivisionError("the generator")
            return drawn(seed, k, *more)

        vars(kinds)["sample"] = sample


class Leaving(Plain):
    """Ends its process as if all were well."""

    def run(self, graph: UOp, inputs: Inputs) -> Result:
        os._exit(0)
