"""The c backends: the compiler on the C targets, strict on every row."""

from __future__ import annotations

from uops.backends.c.driver import COMPILERS
from uops.backends.c.target import DriverTarget, TinyTarget
from uops.backends.contract import Capabilities, CompilerBackend

TIERS = ("tcc", *COMPILERS)


class CBackend(CompilerBackend):
    """`tier` is `tcc` (compiles fastest, the default), `gcc` or `clang` (faster code). Raises Unsupported where it is absent."""

    name = "c"

    def __init__(self, tier: str = "tcc", guard: bool | str = False) -> None:
        if tier not in TIERS:
            raise ValueError(f"no tier is called {tier!r}; known: {', '.join(TIERS)}")
        self._c = TinyTarget() if tier == "tcc" else DriverTarget(tier)
        super().__init__(self._c, guard=guard)

    def version(self) -> str:
        return self._c.version()

    def capabilities(self) -> Capabilities:
        """Every dtype: the narrow floats are computed by integers and float32."""
        return Capabilities()


class GccBackend(CBackend):
    """`c` in the tier `gcc`, under a name for the command line."""

    name = "c:gcc"

    def __init__(self, guard: bool | str = False) -> None:
        super().__init__("gcc", guard)


class ClangBackend(CBackend):
    """`c` in the tier `clang`, under a name for the command line."""

    name = "c:clang"

    def __init__(self, guard: bool | str = False) -> None:
        super().__init__("clang", guard)
