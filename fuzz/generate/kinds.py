"""What a campaign draws: the kinds of programs, and case k of a seed.

`sample(seed, k, kinds, declared)` is a pure function of its arguments and of VERSION (and of NumPy, whose generators fill the
arrays, and for the kind `rules` of the compiler's rules), so that any case of a campaign can be made again alone. A kind says of
which dialect its programs are; oracles say which they judge. `declared` says of what dtypes and rows TENSOR programs are made: a
backend that has few is asked for those.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from uops.backends.answer import leaves
from uops.backends.testing.values import Draw, from_bits, special_bits
from uops.fuzz.generate import bestiary, chains, kernels, laws, programs
from uops.fuzz.generate.declared import EVERYTHING, Declared
from uops.fuzz.generate.draw import SeededDraw
from uops.fuzz.generate.graphs import Case, generate
from uops.fuzz.generate.maker import Maker
from uops.fuzz.generate.producers import ELEMENTWISE, FEATURES, LEAVES, PRODUCERS
from uops.fuzz.reduce.corpus import OF_BESTIARY
from uops.spec.errors import UopsError
from uops.spec.ir import build as b
from uops.spec.ir import dtypes as dt
from uops.spec.ir.dtypes import DType
from uops.spec.ir.node import UOp, toposort
from uops.spec.ir.ops import Op
from uops.spec.ir.record import dataclass
from uops.spec.suggest import suggest_names
from uops.spec.verify.dialects import Dialect

#: Changes whenever some (seed, k, kinds, declared) gives another case.
VERSION = 16
#: Nodes and elements of one graph, small ones more often: most bugs need little, and little runs fast.
NODES = (2, 3, 3, 4, 4, 5, 5, 6, 7, 8, 10, 12, 16)
ELEMENTS = (8, 16, 32, 32, 64, 64, 100, 200)
#: What needs several devices.
MULTIPLE = frozenset({"shards", "everywhere"})
#: What calls bodies or orders effects.
BODIES = frozenset({"function", "call"})
#: Of which a Reduce is drawn, and how often: what compilers have closed forms and memory of their own for.
REDUCES = {"reduce_add": 1, "reduce_max": 1, "reduce_mul": 1, "selected": 3, "crossed": 2}
#: How often a program is drawn, until every cell of it is declared.
TRIES = 32
#: Of which single ops are drawn: conversions have the most cases.
_SINGLE = (*ELEMENTWISE, *(p for p in PRODUCERS if p.name in ("cast", "folded", "indices") for _ in range(2)))


class Sample(NamedTuple):
    """A program with inputs; `opts` says how its kernels are scheduled where an oracle asks for schedules
    (`uops.fuzz.generate.schedules`): "" for no OptOps at all, None for what that oracle draws."""

    kind: str
    graph: UOp
    inputs: Mapping[str, Any]
    opts: str | None = None


class UnknownKind(UopsError, LookupError):
    """No kind has the name."""


@dataclass(frozen=True, slots=True)
class Kind:
    """`weight`: how often it is drawn where several kinds are asked for."""

    name: str
    what: str
    dialect: Dialect
    make: Callable[[Draw, Declared], Case]
    weight: int = 1


def _tensor(features: frozenset[str]) -> Callable[[Draw, Declared], Case]:
    def make(draw: Draw, declared: Declared) -> Case:
        nodes, most = draw.choice(NODES), draw.choice(ELEMENTS)
        return generate(draw, nodes=nodes, max_elements=most, features=features, declared=declared)

    return make


def _bodies(draw: Draw, declared: Declared) -> Case:
    """The root is made by a Function or a Call, whose body may have others."""
    nodes, most = draw.integer(4, 14), draw.choice(ELEMENTS)
    return generate(draw, nodes=nodes, max_elements=most, features=FEATURES - MULTIPLE, first=BODIES, declared=declared)


def _reduces(draw: Draw, declared: Declared) -> Case:
    """A Reduce, or what movement ops make of one."""
    producers = tuple(p for p in PRODUCERS if p.name in FEATURES - MULTIPLE)
    m = Maker(draw, draw.choice((16, 64, 200, 400)), dt.STORABLE, producers, LEAVES, declared=declared)
    d, shape = draw.choice(m.dtypes), m.shape(64)
    budget = draw.integer(2, 5)
    fitting = [p for p in declared.among(PRODUCERS) for _ in range(REDUCES.get(p.name, 0)) if p.admits(m, d, shape, budget)]
    below = draw.choice(fitting).make(m, d, shape, budget) if fitting else m.value(d, shape, budget)
    if draw.chance(50):
        below = b.permute(below, tuple(range(len(shape)))[1:] + (0,) * bool(shape))
        m.made.setdefault((d, tuple(below.shape)), []).append(below)
        below = UOp(Op.WHERE, (m.value(dt.bool_, tuple(below.shape), 2), below, m.value(d, tuple(below.shape), 2)))
    return Case(below, m.inputs)


class _Meeting(Maker):
    """Gives an op the values that are cases of their own: the first operand along a column, the second along a row, so that every
    two of them meet, and one of them for all of what is more."""

    operands: int = 0

    def value(self, d: DType, shape: tuple[int, ...], budget: int) -> UOp:
        bits = np.array(special_bits(d), np.uint64)
        self.operands += 1
        if self.operands > 2:
            return self.given(d, from_bits(bits[[self.draw.integer(0, len(bits) - 1)]], d).reshape(1, 1))
        return self.given(d, from_bits(bits, d).reshape((-1, 1) if self.operands == 1 else (1, -1)))


def _ops(draw: Draw, declared: Declared) -> Case:
    """Values side by side, of an op or two each; sometimes one of every two operands that are a case of their own."""
    m = Maker(draw, 64, dt.STORABLE, _SINGLE, LEAVES, declared=declared)
    shape = (m.extent(64),) if draw.chance(70) else ()
    values = [m.value(draw.choice(m.dtypes), shape, draw.integer(2, 3)) for _ in range(draw.integer(2, 6))]
    if draw.chance(30):
        meeting = _Meeting(draw, 64, dt.STORABLE, ELEMENTWISE, LEAVES, m.inputs, fresh=m.fresh, declared=declared)
        d = draw.choice((*m.dtypes, *declared.of((dt.bool_, dt.bool_, dt.bool_))))
        if fitting := [p for p in meeting.producers if p.admits(meeting, d, (1,), 2)]:
            values.append(draw.choice(fitting).make(meeting, d, (1,), 2))
    return Case(b.tuple_(*values), m.inputs)


def _bestiary(draw: Draw, declared: Declared) -> Case:
    """What the backend declares is of the first document."""
    return bestiary.generate(draw, draw.choice(tuple(bestiary.FAMILIES)))


# fmt: off
KINDS: dict[str, Kind] = {k.name: k for k in (
    Kind("tensor",   "graphs of every op of one device",               Dialect.TENSOR,   _tensor(FEATURES - MULTIPLE), 4),
    Kind("ops",      "single ops on what are cases of their own",      Dialect.TENSOR,   _ops, 2),
    Kind("reduces",  "graphs with a Reduce near the top",              Dialect.TENSOR,   _reduces, 2),
    Kind("chains",   "chains of Tensor methods, as users write them",   Dialect.TENSOR,   chains.generate, 3),
    Kind("rules",    "what the compiler's rewrite rules rewrite",      Dialect.TENSOR,   laws.generate),
    Kind("programs", "statements on Buffers: reads, Stores, reads",   Dialect.TENSOR,   programs.program, 2),
    Kind("symbolic", "graphs whose extents are variables",             Dialect.TENSOR,   programs.symbolic),
    Kind("bodies",   "graphs with a Function or a Call on top",        Dialect.TENSOR,   _bodies),
    Kind("kernels",  "scheduled kernels with LOCAL memory, workgroups and Barriers", Dialect.SCHEDULED, kernels.generate),
    Kind("devices",  "graphs on several devices",                      Dialect.TENSOR,   _tensor(FEATURES)),
    Kind("bestiary", "graphs of the second document, against legalize", Dialect.BESTIARY, _bestiary),
)}
# fmt: on
#: What is drawn where nothing is asked for.
DEFAULT = ("tensor",)


def sample(seed: int, k: int, kinds: Sequence[str] = DEFAULT, declared: Declared = EVERYTHING) -> Sample:
    """Case `k` of `seed`. Raises UnknownKind."""
    draw = SeededDraw(number(VERSION, seed, k, *kinds))
    return made(draw.choice(_weighted(kinds)), draw, declared)


def made(kind: Kind, draw: Draw, declared: Declared = EVERYTHING) -> Sample:
    """A sample of the kind; a function of the choices of `draw`. Of TENSOR programs the first of what is declared, of TRIES."""
    tries = (kind.make(draw, declared) for _ in range(TRIES))
    found = first = next(tries)
    if kind.dialect is Dialect.TENSOR and not declared.holds(first.graph):
        found = next((c for c in tries if declared.holds(c.graph)), first)
    return Sample(kind.name, found.graph, taken(*found))


def taken(graph: UOp, given: Mapping[str, Any]) -> dict[str, Any]:
    """Of what is given that which the graph takes: nothing else is an input of it, and no text of it could be read with more."""
    keys = leaves(graph).keys() | {OF_BESTIARY[u.op](u) for u in toposort(graph) if u.op in OF_BESTIARY}
    return {k: v for k, v in given.items() if k in keys}


def known(names: Sequence[str]) -> tuple[Kind, ...]:
    """The kinds of these names. Raises UnknownKind."""
    missing = [n for n in names if n not in KINDS]
    if missing:
        raise UnknownKind(f"no kind is called {missing[0]!r}; known: {', '.join(KINDS)}{suggest_names(missing[0], KINDS)}")
    return tuple(KINDS[n] for n in names)


def number(*parts: object) -> int:
    """64 bits that depend on all parts; the same in every process."""
    return int.from_bytes(hashlib.blake2b(repr(parts).encode(), digest_size=8).digest(), "little")


def _weighted(names: Sequence[str]) -> list[Kind]:
    return [k for k in known(names) for _ in range(k.weight)]
