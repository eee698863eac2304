"""Hypothesis strategies for users' own tests: the same generator, driven by hypothesis so that failures shrink.

Needs hypothesis (the extra `fuzz`), else ImportError. A failing program is printed as a file that `uops run` and
`uops fuzz FILE --backend NAME` take; `drawn` gives what a campaign drew, for `hypothesis.example`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from uops.spec.extras import how_to_install

try:
    from hypothesis import assume
    from hypothesis import strategies as st
except ImportError as e:
    raise ImportError(f"uops.fuzz.generate.strategies needs hypothesis: {how_to_install('fuzz')}", name="hypothesis") from e

from uops.backends.answer import leaves
from uops.backends.contract import Capabilities
from uops.backends.testing.values import array
from uops.fuzz.generate import graphs, kinds
from uops.fuzz.generate.declared import Declared
from uops.fuzz.reduce import reproducer
from uops.fuzz.reduce.reduce import reduce
from uops.spec.ir import dtypes as dt
from uops.spec.ir.dtypes import DType
from uops.spec.ir.node import UOp
from uops.spec.verify.dialects import Dialect

T = TypeVar("T")
_EVERYTHING = Capabilities()


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


def _text(graph: UOp, inputs: Mapping[str, Any]) -> str:
    """The program as a file, with its inputs."""
    whole = reproducer.text(reproducer.Reproducer(kinds.Sample("", graph, inputs), {}))
    return whole.partition("\n")[2]  # the first line says how a campaign found it


class Case(graphs.Case):
    """A graph and its inputs, printed as a file."""

    __slots__ = ()

    def __repr__(self) -> str:
        used = leaves(self.graph)
        return f"Case of\n{_text(self.graph, {k: v for k, v in self.inputs.items() if k in used})}"


class Sample(kinds.Sample):
    """A program of a kind and its inputs, printed as a file."""

    __slots__ = ()

    def __repr__(self) -> str:
        scheduled = f" with {self.opts}" if self.opts else ""
        return f"Sample of {self.kind}{scheduled}\n{_text(self.graph, self.inputs)}"


@st.composite
def cases(draw: Any, /, max_nodes: int = 12, capabilities: Capabilities = _EVERYTHING, **options: Any) -> Case:
    """Well-typed TENSOR graphs with inputs, of the dtypes and rows of `capabilities` alone. `options` are those of
    `uops.fuzz.generate.graphs.generate`:

    - `dtypes`: of the root's values, and of operands whose dtype their op leaves open. It is no bound on the graph: conditions are
      bool, and counts of shifts, sources of Casts and Bitcasts, positions and what is in memory may have any dtype. The `dtypes` of
      `capabilities` are one.
    - `features`: the names of the producers that may be used (`uops.fuzz.generate.producers.FEATURES` has all).
    - `max_elements`: of any one value.
    """
    source, declared = HypothesisDraw(draw), Declared.by(capabilities)
    found = graphs.generate(source, nodes=source.integer(1, max_nodes), declared=declared, **options)
    assume(declared.holds(found.graph))
    return Case(*found)


@st.composite
def arrays(draw: Any, /, dtype: DType | None = None, max_side: int = 5, max_rank: int = 3) -> Any:
    """Arrays of one dtype (default: any that can be stored), edge values included."""
    source = HypothesisDraw(draw)
    d = dtype or source.choice(dt.STORABLE)
    shape = tuple(source.integer(0, max_side) for _ in range(source.integer(0, max_rank)))
    return array(source, d, shape)


@st.composite
def samples(draw: Any, /, kind: str = "tensor", capabilities: Capabilities = _EVERYTHING) -> Sample:
    """Programs of a kind of campaigns (`uops.fuzz.generate.kinds.KINDS`), with inputs; TENSOR ones of the dtypes and rows of
    `capabilities` alone."""
    (known,), declared = kinds.known((kind,)), Declared.by(capabilities)
    found = kinds.made(known, HypothesisDraw(draw), declared)
    assume(known.dialect is not Dialect.TENSOR or declared.holds(found.graph))
    return Sample(*found)


def drawn(seed: int, k: int, kinds_: Sequence[str] = kinds.DEFAULT, capabilities: Capabilities = _EVERYTHING) -> Sample:
    """Case `k` of the campaign of a seed, of kinds and of a backend with these capabilities. Raises UnknownKind."""
    return Sample(*kinds.sample(seed, k, [kind.name for kind in kinds.known(kinds_)], Declared.by(capabilities)))


def smaller(found: Case | Sample, fails: Callable[[Sample], bool]) -> Sample:
    """The smallest program, by the reducer of campaigns, of which `fails` still says so: what hypothesis gives has as few choices
    as it could find, and not always as few nodes. `found` itself has to fail."""
    first = found if isinstance(found, Sample) else Sample("tensor", found.graph, found.inputs)
    return Sample(*reduce(kinds.Sample(*first), lambda s: fails(Sample(*s))))


__all__ = ["Case", "HypothesisDraw", "Sample", "arrays", "cases", "drawn", "samples", "smaller"]
