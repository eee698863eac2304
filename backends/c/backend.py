"""The c backends: the compiler on the C targets, strict on every row."""

from __future__ import annotations

from uops.backends.c.driver import COMPILERS
from uops.backends.c.target import DriverTarget, TinyTarget
from uops.backends.contract import Capabilities, CompilerBackend

TIERS = ("tcc", *COMPILERS)


class CBackend(CompilerBackend):
    """The backend of C kernels. `tier` is `tcc` (compiles fastest, the default), `gcc` or `clang` (fastest code).

    Raises Unsupported if the compiler is absent.
    """

    name = "c"

    def __init__(self, tier: str = "tcc", guard: bool | str = False) -> None:
        if tier not in TIERS:
            raise ValueError(f"tier must be one of {', '.join(TIERS)}, got {tier!r}")
        self._c = TinyTarget() if tier == "tcc" else DriverTarget(tier)
        super().__init__(self._c, guard=guard)

    def version(self) -> str:
        """Return the versions of this package and of the C compiler."""
        return self._c.version()

    def capabilities(self) -> Capabilities:
        """Declare every dtype: narrow floats are computed with integers and float32."""
        return Capabilities.of_target(self.target, "c")


class GccBackend(CBackend):
    """The `c` backend in the tier `gcc`, under a name of its own for the command line."""

    name = "c:gcc"

    def __init__(self, guard: bool | str = False) -> None:
        super().__init__("gcc", guard)


class ClangBackend(CBackend):
    """The `c` backend in the tier `clang`, under a name of its own for the command line."""

    name = "c:clang"

    def __init__(self, guard: bool | str = False) -> None:
        super().__init__("clang", guard)
