"""Hypothesis strategies for users' own tests: the same generators, driven by hypothesis so that failures shrink.

Needs hypothesis (the extra `fuzz`), else ImportError. A failing program is printed as a file that `uops run` and `uops fuzz
FILE --backend NAME` take. `draw_case` gives a case of a campaign, for `hypothesis.example`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from uops.spec.extras import install_command

try:
    from hypothesis import assume
    from hypothesis import strategies as st
except ImportError as e:
    raise ImportError(f"uops.fuzz.generate.strategies needs hypothesis: {install_command('fuzz')}", name="hypothesis") from e

from uops.backends.answer import collect_caller_input_nodes
from uops.backends.contract import Capabilities
from uops.backends.testing.values import draw_array
from uops.compiler.target import Target
from uops.fuzz.generate import graphs, kinds
from uops.fuzz.generate.declared import SupportedOpDtypes
from uops.fuzz.generate.producers import FEATURES
from uops.fuzz.generate.schedules import (
    OptOpDrawer,
    ScheduleTextFollower,
    draw_optop_sequence,
    pipeline_with_scheduler,
    run_passes_up_to,
)
from uops.fuzz.reduce import reproducer
from uops.fuzz.reduce.reduce import reduce_sample
from uops.spec.ir import dtypes as dt
from uops.spec.ir.dtypes import DType
from uops.spec.ir.node import UOp
from uops.spec.optops import Axis, OptOp, parse_optop
from uops.spec.verify.dialects import Dialect

T = TypeVar("T")
_EVERYTHING = Capabilities()


class HypothesisDraw:
    """A `ChoiceSource` over the choices of hypothesis."""

    def __init__(self, draw: Any) -> None:
        self._draw = draw

    def integer(self, lo: int, hi: int) -> int:
        """Draw an integer from `lo` to `hi`."""
        return int(self._draw(st.integers(lo, hi)))

    def chance(self, percent: int) -> bool:
        """Return True with a probability of about `percent` in 100; hypothesis shrinks to False."""
        return int(self._draw(st.integers(0, 99))) >= 100 - percent

    def choice(self, options: tuple[T, ...] | list[T]) -> T:
        """Draw one of the options; hypothesis shrinks to the first."""
        return options[int(self._draw(st.integers(0, len(options) - 1)))]


def _program_text(graph: UOp, inputs: Mapping[str, Any]) -> str:
    """Return the program as the text of a file with its inputs."""
    whole = reproducer.format_reproducer(reproducer.Reproducer(kinds.ProgramSample("", graph, inputs), {}))
    return whole.partition("\n")[2]  # the first line says how a campaign found it


class PrintableCase(graphs.FuzzCase):
    """A graph and its inputs, printed as a file."""

    __slots__ = ()

    def __repr__(self) -> str:
        used = collect_caller_input_nodes(self.graph)
        return f"Case of\n{_program_text(self.graph, {k: v for k, v in self.inputs.items() if k in used})}"


class PrintableSample(kinds.ProgramSample):
    """A program of a kind and its inputs, printed as a file."""

    __slots__ = ()

    def __repr__(self) -> str:
        scheduled = f" with {self.opts}" if self.opts else ""
        return f"Sample of {self.kind}{scheduled}\n{_program_text(self.graph, self.inputs)}"


@st.composite
def cases(draw: Any, /, max_nodes: int = 12, capabilities: Capabilities = _EVERYTHING, **options: Any) -> PrintableCase:
    """Draw well-typed TENSOR graphs with inputs, made of the dtypes and rows of `capabilities` alone.

    `options` are those of `uops.fuzz.generate.graphs.generate_tensor_graph`:

    - `dtypes`: of the root's values, and of operands whose dtype their op leaves open. They do not bound the whole graph:
      conditions are bool, and shift counts, sources of Casts and Bitcasts, positions and memory may have any dtype. The
      `dtypes` of `capabilities` do bound it.
    - `features`: the names of the producers that may be used (`uops.fuzz.generate.producers.FEATURES` has all).
    - `max_elements`: the maximum number of elements of any one value.
    """
    source, declared = HypothesisDraw(draw), SupportedOpDtypes.from_capabilities(capabilities)
    case = graphs.generate_tensor_graph(source, nodes=source.integer(1, max_nodes), declared=declared, **options)
    assume(declared.supports_graph(case.graph))
    return PrintableCase(*case)


class ScheduledCase(PrintableSample):
    """A TENSOR program, its inputs, and OptOps for its kernels, printed as a file below the OptOps.

    `opts` is the text of the OptOps: `KERNEL:OPTOP` between semicolons. `scheduler()` applies them.
    """

    __slots__ = ()

    @property
    def optops(self) -> list[tuple[int, OptOp]]:
        """The OptOps in order, each with the number of its kernel."""
        parts = [part.partition(":") for part in (self.opts or "").split("; ") if part]
        return [(int(kernel), parse_optop(text)) for kernel, _, text in parts]

    def scheduler(self) -> ScheduleTextFollower:
        """Return a choice of schedules that applies the OptOps, for `pipeline_with_scheduler`; one lowering uses it up."""
        return ScheduleTextFollower(self.opts or "")


@st.composite
def optop_sequences(draw: Any, /, axes: Sequence[Axis], max_optops: int = 4) -> list[OptOp]:
    """Draw OptOps for a kernel with these axes, each legal after the ones before it (`uops.spec.optops`).

    Hypothesis shrinks to fewer and simpler OptOps, which are legal, too.
    """
    return draw_optop_sequence(HypothesisDraw(draw), axes, max_optops)


@st.composite
def scheduled_cases(
    draw: Any, /, target: Target, max_optops: int = 4, max_nodes: int = 8, capabilities: Capabilities = _EVERYTHING, **options: Any
) -> ScheduledCase:
    """Draw TENSOR graphs with inputs, and legal OptOps for the kernels that the compiler makes of them for `target`.

    Hypothesis shrinks the graph and the OptOps. `options`, `max_nodes` and `capabilities` are those of `cases`. A graph on several
    devices has no kernels and is not drawn.
    """
    options = {"features": FEATURES - kinds.MULTIPLE, **options}
    case = draw(cases(max_nodes=max_nodes, capabilities=capabilities, **options))
    drawer = OptOpDrawer(HypothesisDraw(draw), max_optops)
    run_passes_up_to(case.graph, target, pipeline_with_scheduler(drawer), last_pass="optimize")
    return ScheduledCase("tensor", case.graph, kinds.select_graph_inputs(case.graph, case.inputs), drawer.applied_text)


@st.composite
def arrays(draw: Any, /, dtype: DType | None = None, max_side: int = 5, max_rank: int = 3) -> Any:
    """Draw arrays of one dtype (default: any storable one), edge values included."""
    source = HypothesisDraw(draw)
    d = dtype or source.choice(dt.STORABLE)
    shape = tuple(source.integer(0, max_side) for _ in range(source.integer(0, max_rank)))
    return draw_array(source, d, shape)


@st.composite
def samples(draw: Any, /, kind: str = "tensor", capabilities: Capabilities = _EVERYTHING) -> PrintableSample:
    """Draw programs of a kind of campaigns (`uops.fuzz.generate.kinds.KINDS`), with inputs. TENSOR programs are made of the
    dtypes and rows of `capabilities` alone.
    """
    (program_kind,), declared = kinds.look_up_kinds((kind,)), SupportedOpDtypes.from_capabilities(capabilities)
    sample = kinds.generate_sample_of_supported_cells_else_first(program_kind, HypothesisDraw(draw), declared)
    assume(program_kind.dialect is not Dialect.TENSOR or declared.supports_graph(sample.graph))
    return PrintableSample(*sample)


def draw_case(
    seed: int, k: int, kind_names: Sequence[str] = kinds.DEFAULT, capabilities: Capabilities = _EVERYTHING
) -> PrintableSample:
    """Return case `k` of the campaign of a seed and kinds, for a backend with these capabilities. Raises UnknownKind."""
    return PrintableSample(
        *kinds.sample(
            seed, k, [kind.name for kind in kinds.look_up_kinds(kind_names)], SupportedOpDtypes.from_capabilities(capabilities)
        )
    )


def smaller(failing: PrintableCase | PrintableSample, fails: Callable[[PrintableSample], bool]) -> PrintableSample:
    """Minimize a failing program with the reducer of campaigns.

    Hypothesis minimizes choices, which does not always minimize nodes. `fails` says whether a program still fails;
    `failing` itself must fail.
    """
    first = failing if isinstance(failing, PrintableSample) else PrintableSample("tensor", failing.graph, failing.inputs)
    return PrintableSample(*reduce_sample(kinds.ProgramSample(*first), lambda s: fails(PrintableSample(*s))))


__all__ = [
    "PrintableCase", "HypothesisDraw", "PrintableSample", "ScheduledCase", "arrays", "cases", "draw_case", "optop_sequences",
    "samples", "scheduled_cases", "smaller",
]  # fmt: skip
