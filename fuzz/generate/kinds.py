"""The kinds of programs that a campaign draws, and case k of a seed.

`sample(seed, k, kinds, declared)` is a pure function of its arguments and of `VERSION`, so any case of a campaign can be made
again alone. It also depends on NumPy, whose generators fill the arrays, and for the kind `rules` on the compiler's rules. A
kind names the dialect of its programs; oracles name the dialects they judge. TENSOR programs are made of the dtypes and rows of
`declared`, so that a backend with few of them is tested on those.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from uops.backends.answer import collect_caller_input_nodes
from uops.backends.testing.values import from_bits, special_bits_for_operand_pairs
from uops.fuzz.generate import devices, gradients, programs
from uops.fuzz.generate.bestiary.families import FAMILIES, generate_family_case
from uops.fuzz.generate.declared import EVERYTHING, SupportedOpDtypes
from uops.fuzz.generate.draw import RecordingDraw, SeededDraw
from uops.fuzz.generate.graphs import FuzzCase, generate_tensor_graph
from uops.fuzz.generate.kernels.scheduled import generate_linear_of_one_or_two_kernels
from uops.fuzz.generate.kernels.written_by_hand import generate_launch_of_kernels
from uops.fuzz.generate.maker import GraphMaker
from uops.fuzz.generate.methods import chains, references, sessions, workloads
from uops.fuzz.generate.patterns import laws
from uops.fuzz.generate.patterns.optional import generate_graph_with_optional_functions
from uops.fuzz.generate.producers import ELEMENTWISE, FEATURES, LEAVES, PRODUCERS, make_constant_expression
from uops.fuzz.generate.sparse import generate_program_on_sparse_memory
from uops.fuzz.reduce.corpus import OF_BESTIARY
from uops.spec.choices import ChoiceSource
from uops.spec.errors import UopsError
from uops.spec.ir import build as b
from uops.spec.ir import dtypes as dt
from uops.spec.ir.dtypes import DType
from uops.spec.ir.node import UOp, toposort
from uops.spec.ir.ops import Op
from uops.spec.ir.record import dataclass
from uops.spec.suggest import format_did_you_mean
from uops.spec.verify.dialects import Dialect

#: The version of the generator; it changes whenever some (seed, k, kinds, declared) gives another case.
VERSION = 56
#: The version of the draws: only a change of this one gives every kind other cases.
DRAWS = 18
#: Numbers of nodes and of elements of one graph; small ones are more frequent, since most bugs show in small graphs.
NODES = (2, 3, 3, 4, 4, 5, 5, 6, 7, 8, 10, 12, 16)
ELEMENTS = (8, 16, 32, 32, 64, 64, 100, 200)
#: Features that need several devices.
MULTIPLE = frozenset({"shards", "everywhere"})
#: Features that call bodies.
BODIES = frozenset({"function", "call"})
#: Producers of reductions with their weights. The heavy ones have closed forms or memory of their own in compilers.
REDUCES = {"reduce_add": 1, "reduce_max": 1, "reduce_mul": 1, "selected": 3, "crossed": 2}
#: Number of expressions of constants that one value holds.
_FOLDED = 12
#: Maximum number of programs that are drawn until one has supported cells alone.
TRIES = 32
#: Producers of single ops; conversions, which have the most edge cases, are repeated.
_SINGLE = (*ELEMENTWISE, *(p for p in PRODUCERS if p.name in ("cast", "folded", "indices") for _ in range(2)))


class ProgramSample(NamedTuple):
    """A program with inputs. `opts` is the schedule of its kernels for oracles that use one
    (`uops.fuzz.generate.schedules`): "" for no OptOps, None to let the oracle draw. `choices` are those that made the sample, if
    its kind records them, for an oracle that needs more than the program.
    """

    kind: str
    graph: UOp
    inputs: Mapping[str, Any]
    opts: str | None = None
    choices: tuple[int, ...] | None = None


class UnknownKind(UopsError, LookupError):
    """An unknown name of a kind."""


@dataclass(frozen=True, slots=True)
class ProgramKind:
    """A kind of programs. `weight` is its frequency among the kinds of a campaign. With `records_choices`, samples carry the
    choices that made them; these alone determine the program.
    """

    name: str
    description: str
    dialect: Dialect
    make: Callable[[ChoiceSource, SupportedOpDtypes], FuzzCase]
    weight: int = 1
    records_choices: bool = False


def _tensor_graph_generator(features: frozenset[str]) -> Callable[[ChoiceSource, SupportedOpDtypes], FuzzCase]:
    """Return the generator of TENSOR graphs with these features."""

    def make(draw: ChoiceSource, declared: SupportedOpDtypes) -> FuzzCase:
        nodes, max_elements = draw.choice(NODES), draw.choice(ELEMENTS)
        return generate_tensor_graph(draw, nodes=nodes, max_elements=max_elements, features=features, declared=declared)

    return make


def _generate_function_or_call_root(draw: ChoiceSource, declared: SupportedOpDtypes) -> FuzzCase:
    """Generate a graph whose root is made by a Function or a Call, whose body may contain others."""
    nodes, max_elements = draw.integer(4, 14), draw.choice(ELEMENTS)
    features = FEATURES - MULTIPLE
    return generate_tensor_graph(
        draw, nodes=nodes, max_elements=max_elements, features=features, root_producers=BODIES, declared=declared
    )  # fmt: skip


def _generate_reduce_near_root(draw: ChoiceSource, declared: SupportedOpDtypes) -> FuzzCase:
    """Generate a Reduce near the root, sometimes permuted and selected from."""
    producers = tuple(p for p in PRODUCERS if p.name in FEATURES - MULTIPLE)
    m = GraphMaker(draw, draw.choice((16, 64, 200, 400)), dt.STORABLE, producers, LEAVES, declared=declared)
    d, shape = draw.choice(m.dtypes), m.draw_shape(64)
    budget = draw.integer(2, 5)
    fitting = [
        p for p in declared.filter_producers(PRODUCERS) for _ in range(REDUCES.get(p.name, 0)) if p.admits(m, d, shape, budget)
    ]
    value = draw.choice(fitting).make(m, d, shape, budget) if fitting else m.make_value(d, shape, budget)
    if draw.chance(50):
        value = b.permute(value, tuple(range(len(shape)))[1:] + (0,) * bool(shape))
        m.values_by_type.setdefault((d, tuple(value.shape)), []).append(value)
        value = UOp(Op.WHERE, (m.make_value(dt.bool_, tuple(value.shape), 2), value, m.make_value(d, tuple(value.shape), 2)))
    return FuzzCase(value, m.inputs)


class _SpecialPairOperandMaker(GraphMaker):
    """A maker whose first operand holds all special values along a column and whose second holds them along a row, so that
    every pair meets. Further operands hold one special value each.
    """

    operands: int = 0

    def make_value(self, d: DType, shape: tuple[int, ...], budget: int) -> UOp:
        """Make the next operand."""
        bits = np.array(special_bits_for_operand_pairs(d), np.uint64)
        self.operands += 1
        if self.operands > 2:
            return self.make_param_with_data(d, from_bits(bits[[self.draw.integer(0, len(bits) - 1)]], d).reshape(1, 1))
        return self.make_param_with_data(d, from_bits(bits, d).reshape((-1, 1) if self.operands == 1 else (1, -1)))


def _generate_tuple_of_values_of_two_ops_at_most(draw: ChoiceSource, declared: SupportedOpDtypes) -> FuzzCase:
    """Generate a Tuple of values of one or two ops each, sometimes with one op on every pair of special values, and sometimes
    with expressions of constants.
    """
    m = GraphMaker(draw, 64, dt.STORABLE, _SINGLE, LEAVES, declared=declared)
    shape = (m.draw_extent(64),) if draw.chance(70) else ()
    values = [m.make_value(draw.choice(m.dtypes), shape, draw.integer(2, 3)) for _ in range(draw.integer(2, 6))]
    if draw.chance(30):
        pairs = _SpecialPairOperandMaker(
            draw, 64, dt.STORABLE, ELEMENTWISE, LEAVES, m.inputs, next_slot=m.next_slot, declared=declared
        )
        d = draw.choice((*m.dtypes, *declared.filter_dtypes((dt.bool_, dt.bool_, dt.bool_))))
        if fitting := [p for p in pairs.producers if p.admits(pairs, d, (1,), 2)]:
            values.append(draw.choice(fitting).make(pairs, d, (1,), 2))
    if draw.chance(30):
        d = draw.choice(m.dtypes)
        values.append(b.stack(*[make_constant_expression(m, d, (), 2) for _ in range(_FOLDED)]))
    return FuzzCase(b.tuple_(*values), m.inputs)


def _generate_gradients(draw: ChoiceSource, declared: SupportedOpDtypes) -> FuzzCase:
    """Generate the gradients of a graph with respect to its Params of floats."""
    nodes, max_elements = draw.choice(NODES), draw.choice(ELEMENTS)
    return gradients.generate_backward_graph(draw, nodes, max_elements, declared)


def _generate_bestiary(draw: ChoiceSource, declared: SupportedOpDtypes) -> FuzzCase:
    """Generate a graph of the second document. A backend's declaration, which concerns the first one, has no effect."""
    return generate_family_case(draw, draw.choice(tuple(FAMILIES)))


#: Name -> kind. Draws depend on the order. A campaign of all kinds spends between 1 and 13 % of its time on each: cases of
#: `sessions`, `chains` and `wide` take four to six times as long as those of `tensor`.
# fmt: off
KINDS: dict[str, ProgramKind] = {k.name: k for k in (
    ProgramKind("tensor", "graphs of every op of one device",
                Dialect.TENSOR, _tensor_graph_generator(FEATURES - MULTIPLE), 10),
    ProgramKind("ops", "single ops on what are cases of their own",
                Dialect.TENSOR, _generate_tuple_of_values_of_two_ops_at_most, 6),
    ProgramKind("reduces", "graphs with a Reduce near the top",
                Dialect.TENSOR, _generate_reduce_near_root, 4),
    ProgramKind("chains", "chains of Tensor methods, as users write them",
                Dialect.TENSOR, chains.generate_tensor_chain, 2),
    ProgramKind("workloads", "products, convolutions, attention, scans and others, in miniature",
                Dialect.TENSOR, workloads.generate_workload, 5),
    ProgramKind("wide", "hundreds of operands, kernels or values that live at once",
                Dialect.TENSOR, workloads.generate_wide_program),
    ProgramKind("rules", "what the compiler's rewrite rules rewrite",
                Dialect.TENSOR, laws.generate_rule_left_sides, 3),
    ProgramKind("programs", "statements on Buffers: reads, Stores, reads",
                Dialect.TENSOR, programs.generate_statements_on_buffers, 3),
    ProgramKind("symbolic", "graphs whose extents are variables",
                Dialect.TENSOR, programs.generate_symbolic_shape_graph, 3),
    ProgramKind("bodies", "graphs with a Function or a Call on top",
                Dialect.TENSOR, _generate_function_or_call_root),
    ProgramKind("kernels", "scheduled kernels with LOCAL memory, workgroups and Barriers",
                Dialect.SCHEDULED, generate_linear_of_one_or_two_kernels, 2),
    ProgramKind("launches", "launches of kernels written by hand, whose loops may be scheduled",
                Dialect.KERNEL, generate_launch_of_kernels, 2),
    ProgramKind("calls", "Calls of kernels written by hand, among statements on the same Buffers",
                Dialect.TENSOR, programs.generate_program_with_kernel_calls, 2),
    ProgramKind("devices", "programs on several devices: shards, collectives, Stores",
                Dialect.TENSOR, devices.generate_program_on_devices),
    ProgramKind("gradients", "gradients of graphs of floats",
                Dialect.TENSOR, _generate_gradients, 2),
    ProgramKind("bestiary", "graphs of the second document, against legalize",
                Dialect.BESTIARY, _generate_bestiary),
    ProgramKind("methods", "single calls of Tensor methods, which NumPy computes, too",
                Dialect.TENSOR, references.generate_method_call, 6, records_choices=True),
    ProgramKind("sessions", "statements of the front end in a row: views, assignments, compiled functions, gradients",
                Dialect.TENSOR, sessions.generate_session, 3, records_choices=True),
    ProgramKind("optional", "functions of the optional rows: rounding, remainders, sorting",
                Dialect.TENSOR, generate_graph_with_optional_functions),
    ProgramKind("sparse", "reads of memory of more than 2^31 elements, most of them zero",
                Dialect.TENSOR, generate_program_on_sparse_memory),
)}
# fmt: on
#: The kinds of a campaign that names none.
DEFAULT = ("tensor",)


def sample(seed: int, k: int, kinds: Sequence[str] = DEFAULT, declared: SupportedOpDtypes = EVERYTHING) -> ProgramSample:
    """Return case `k` of `seed`. Raises UnknownKind."""
    draw = SeededDraw(stable_hash(DRAWS, seed, k, *kinds))
    return generate_sample_of_supported_cells_else_first(draw.choice(_kinds_by_weight(kinds)), draw, declared)


def generate_sample_of_supported_cells_else_first(
    kind: ProgramKind, draw: ChoiceSource, declared: SupportedOpDtypes = EVERYTHING
) -> ProgramSample:
    """Generate a sample of a kind as a function of the choices of `draw`. Of up to `TRIES` TENSOR programs, the first of
    supported cells is taken.
    """
    tries = (_generate_case_and_choices(kind, draw, declared) for _ in range(TRIES))
    case, choices = first = next(tries)
    if kind.dialect is Dialect.TENSOR and not declared.supports_graph(case.graph):
        case, choices = next((t for t in tries if declared.supports_graph(t[0].graph)), first)
    return ProgramSample(kind.name, case.graph, select_graph_inputs(*case), choices=choices)


def _generate_case_and_choices(
    kind: ProgramKind, draw: ChoiceSource, declared: SupportedOpDtypes
) -> tuple[FuzzCase, tuple[int, ...] | None]:
    """Generate a case; return it with its choices if the kind records them."""
    if not kind.records_choices:
        return kind.make(draw, declared), None
    recorded = RecordingDraw(draw)
    return kind.make(recorded, declared), tuple(recorded.choices)


def select_graph_inputs(graph: UOp, inputs: Mapping[str, Any]) -> dict[str, Any]:
    """Select the inputs that a graph takes, so that its text can be read with exactly these."""
    keys = collect_caller_input_nodes(graph).keys() | {OF_BESTIARY[u.op](u) for u in toposort(graph) if u.op in OF_BESTIARY}
    return {k: v for k, v in inputs.items() if k in keys}


def look_up_kinds(names: Sequence[str]) -> tuple[ProgramKind, ...]:
    """Return the kinds of these names. Raises UnknownKind."""
    missing = [n for n in names if n not in KINDS]
    if missing:
        raise UnknownKind(f"no kind is called {missing[0]!r}; known: {', '.join(KINDS)}{format_did_you_mean(missing[0], KINDS)}")
    return tuple(KINDS[n] for n in names)


def stable_hash(*parts: object) -> int:
    """Return a 64-bit hash of the parts that is the same in every process."""
    return int.from_bytes(hashlib.blake2b(repr(parts).encode(), digest_size=8).digest(), "little")


def _kinds_by_weight(names: Sequence[str]) -> list[ProgramKind]:
    return [k for k in look_up_kinds(names) for _ in range(k.weight)]
