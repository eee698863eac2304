"""Settings of the compiler: one frozen value, read once from the environment.

- `UOPS_VERIFY=1` checks the graph against its dialect after every pass.
- `UOPS_VALIDATE=1` validates every kernel, which needs Z3.
- `UOPS_FAST_MATH=1` lets float values change (R156).
- `UOPS_REUSE=0` compiles anew each time.
- `UOPS_OPTIMIZE=0` leaves every kernel its initial loops.
- `UOPS_FORCED=SEED` draws schedules instead of choosing them.
- `UOPS_BEAM=N` searches for schedules by timing and keeps the N best at each step, for at most `UOPS_BEAM_SECONDS` (10) per
  kernel.
- `UOPS_THREADS=N` lets at most N threads share a kernel.
- `UOPS_QUEUES=always` runs programs on several devices in a thread per device, `never` in one; otherwise work decides.
- `UOPS_ENTRY=ctypes` calls kernels one by one through ctypes, where otherwise a whole program is one native call.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from uops.spec.errors import SpecError

_FLAGS = {"0": False, "1": True}
#: The least value of each setting that is a number.
_LEAST = {"forced": 0, "beam": 0, "beam_seconds": 1, "threads": 0}
#: The greatest value of a number: that of an int64.
_MOST = 2**63 - 1
_ENTRIES = ("native", "ctypes")
_QUEUES = ("auto", "always", "never")


@dataclass(frozen=True, slots=True)
class Config:
    """The settings of one compilation. Raises SpecError for a value that a setting does not have.

    - `verify`: run the verifier between passes.
    - `validate`: prove the claims of `uops.compiler.validate` about every kernel.
    - `fast_math`: compute what is equal over the real numbers (`uops.compiler.rewrite.rules.fast_math`).
    - `reuse`: compile a graph once per process and target.
    - `optimize`: schedule kernels for the target's machine.
    - `forced`: the seed of drawn schedules; None: schedules are chosen.
    - `beam`: the width of a search that times schedules, 0 for none; `beam_seconds`: its time limit for one kernel.
    - `threads`: the most threads that share a kernel, 0 for one per core.
    - `queues`: `always` for a thread per device of a program on several, `never` for one thread, `auto` where it pays.
    - `entry`: `native` for one call per program if the target supports it, `ctypes` for one per kernel.
    """

    verify: bool = False
    reuse: bool = True
    optimize: bool = True
    forced: int | None = None
    beam: int = 0
    beam_seconds: int = 10
    threads: int = 0
    entry: str = "native"
    validate: bool = False
    fast_math: bool = False
    queues: str = "auto"

    def __post_init__(self) -> None:
        for name, least in _LEAST.items():
            value = getattr(self, name)
            if not (type(value) is int and least <= value <= _MOST) and not (name == "forced" and value is None):
                raise SpecError(f"Config.{name} must be an integer from {least} to {_MOST}, got {value!r}")
        for name, words in (("entry", _ENTRIES), ("queues", _QUEUES)):
            if getattr(self, name) not in words:
                raise SpecError(f"Config.{name} must be one of {', '.join(words)}, got {getattr(self, name)!r}")

    @classmethod
    def from_environment(cls, environment: Mapping[str, str]) -> Config:
        """Return the settings in an environment. Raises SpecError for a value that a setting does not have."""
        return cls(
            verify=_read_flag(environment, "UOPS_VERIFY", "0"),
            reuse=_read_flag(environment, "UOPS_REUSE", "1"),
            optimize=_read_flag(environment, "UOPS_OPTIMIZE", "1"),
            forced=_read_number(environment, "UOPS_FORCED", 0) if environment.get("UOPS_FORCED") else None,
            beam=_read_number(environment, "UOPS_BEAM", 0),
            beam_seconds=_read_number(environment, "UOPS_BEAM_SECONDS", 10, 1),
            threads=_read_number(environment, "UOPS_THREADS", 0),
            entry=_read_choice(environment, "UOPS_ENTRY", _ENTRIES),
            validate=_read_flag(environment, "UOPS_VALIDATE", "0"),
            fast_math=_read_flag(environment, "UOPS_FAST_MATH", "0"),
            queues=_read_choice(environment, "UOPS_QUEUES", _QUEUES),
        )


def _read_flag(environment: Mapping[str, str], name: str, default: str) -> bool:
    value = environment.get(name, "") or default
    if value not in _FLAGS:
        raise SpecError(f"{name} must be 0 or 1, got {value!r}")
    return _FLAGS[value]


def _read_choice(environment: Mapping[str, str], name: str, words_default_first: tuple[str, ...]) -> str:
    value = environment.get(name, "") or words_default_first[0]
    if value not in words_default_first:
        raise SpecError(f"{name} must be one of {', '.join(words_default_first)}, got {value!r}")
    return value


def _read_number(environment: Mapping[str, str], name: str, default: int, minimum: int = 0) -> int:
    value = environment.get(name, "") or str(default)
    if not (value.isascii() and value.isdigit() and len(value) < 20 and minimum <= int(value) <= _MOST):
        got = repr(value) if len(value) < 40 else f"{len(value)} characters"
        raise SpecError(f"{name} must be a number from {minimum} to {_MOST}, got {got}")
    return int(value)


def cache_folder(environment: Mapping[str, str]) -> Path | None:
    """Return the folder for compiled objects and search results: UOPS_CACHE_DIR, else the user's cache folder (XDG).

    None if UOPS_CACHE is 0 or there is no home.
    """
    if environment.get("UOPS_CACHE") == "0":
        return None
    chosen = environment.get("UOPS_CACHE_DIR", "")
    if chosen:
        return Path(chosen)
    base = environment.get("XDG_CACHE_HOME", "")
    if os.path.isabs(base):
        return Path(base) / "uops"
    home = environment.get("HOME", "")
    return Path(home) / ".cache" / "uops" if os.path.isabs(home) else None


class SettingsGeneration:
    """Number of times that the settings of this process were replaced. Calls compiled before compare it."""

    number = 0


@functools.cache
def default_config() -> Config:
    """Return the settings of this process."""
    return Config.from_environment(os.environ)


def reload_default_config() -> Config:
    """Read the settings of this process again from its environment, and return them."""
    default_config.cache_clear()
    SettingsGeneration.number += 1
    return default_config()
