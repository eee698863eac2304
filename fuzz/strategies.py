"""Hypothesis strategies for users' own tests: the same generator, driven by hypothesis so that failures shrink."""

from __future__ import annotations

from typing import Any, TypeVar

from hypothesis import strategies as st

from uops.fuzz.generate import Case, generate
from uops.fuzz.kinds import Sample, known, made
from uops.fuzz.values import array
from uops.spec import dtypes as dt
from uops.spec.dtypes import DType

T = TypeVar("T")


class HypothesisDraw:
    """A `Draw` over hypothesis' own source of choices."""

    def __init__(self, draw: Any) -> None:
        self._draw = draw

    def integer(self, lo: int, hi: int) -> int:
        return int(self._draw(st.integers(lo, hi)))

    def chance(self, percent: int) -> bool:
        return int(self._draw(st.integers(0, 99))) >= 100 - percent

    def choice(self, options: tuple[T, ...] | list[T]) -> T:
        return options[int(self._draw(st.integers(0, len(options) - 1)))]


@st.composite
def cases(draw: Any, /, max_nodes: int = 12, **options: Any) -> Case:
    """Well-typed TENSOR graphs with inputs; `options` are those of `uops.fuzz.generate.generate`."""
    source = HypothesisDraw(draw)
    return generate(source, nodes=source.integer(1, max_nodes), **options)


@st.composite
def arrays(draw: Any, /, dtype: DType | None = None, max_side: int = 5, max_rank: int = 3) -> Any:
    """Arrays of one dtype (default: any that can be stored), edge values included."""
    source = HypothesisDraw(draw)
    d = dtype or source.choice(dt.STORABLE)
    shape = tuple(source.integer(0, max_side) for _ in range(source.integer(0, max_rank)))
    return array(source, d, shape)


@st.composite
def samples(draw: Any, /, kind: str = "tensor") -> Sample:
    """Programs of a kind of campaigns (`uops.fuzz.kinds.KINDS`), with inputs."""
    return made(known((kind,))[0], HypothesisDraw(draw))


__all__ = ["Case", "HypothesisDraw", "Sample", "arrays", "cases", "samples"]
