"""Settings of the compiler: one frozen value, read once from the environment.

`UOPS_VERIFY=1` checks the graph against its dialect after every pass. `UOPS_REUSE=0` compiles anew each time. `UOPS_OPTIMIZE=0`
leaves every kernel its initial loops.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Mapping

from uops.spec.errors import SpecError
from uops.spec.record import dataclass

_FLAGS = {"": False, "0": False, "1": True}


@dataclass(frozen=True, slots=True)
class Config:
    """`verify`: run the verifier between passes. `reuse`: compile a graph once per process and target. `optimize`: schedule
    kernels for the target's machine."""

    verify: bool = False
    reuse: bool = True
    optimize: bool = True

    @classmethod
    def read(cls, environment: Mapping[str, str]) -> Config:
        """The settings that an environment spells; raises SpecError for a value that is neither 0 nor 1."""
        return cls(
            verify=_flag(environment, "UOPS_VERIFY", "0"),
            reuse=_flag(environment, "UOPS_REUSE", "1"),
            optimize=_flag(environment, "UOPS_OPTIMIZE", "1"),
        )


def _flag(environment: Mapping[str, str], name: str, default: str) -> bool:
    value = environment.get(name, default)
    if value not in _FLAGS:
        raise SpecError(f"{name} is 0 or 1, got {value!r}")
    return _FLAGS[value]


@functools.cache
def default() -> Config:
    """The settings of this process."""
    return Config.read(os.environ)
