"""The laws of OptOps are about what the scheduler builds; the wrong ones next to them are refuted."""

from collections.abc import Iterator

import pytest

from uops.compiler.passes.optimize.schedule.optops import apply
from uops.compiler.passes.optimize.schedule.schedule import Schedule, create_initial_schedule
from uops.compiler.prove import optops
from uops.compiler.prove.counterexample import RuleCounterexample
from uops.compiler.prove.obligations import obligations
from uops.compiler.prove.solver.solver import SolverWorker
from uops.compiler.prove.verdicts import ProofStatus, decide_obligation
from uops.compiler.rewrite.pattern import INDEX, Pattern, as_pattern, eq, instantiate, maximum, var
from uops.compiler.rewrite.rewriter import Rewriter
from uops.compiler.rewrite.rule import Rule
from uops.compiler.rewrite.rules import INDEXING
from uops.fuzz.bisect.replay import replay_counterexample
from uops.spec.ir import build as b
from uops.spec.ir import dtypes as dt
from uops.spec.ir.axes import AxisType
from uops.spec.ir.node import UOp, toposort
from uops.spec.ir.ops import Op
from uops.spec.optops import Padto, Split
from uops.spec.wmma.registry import DESCRIPTORS

FACTOR = 3


def kernel(extent: UOp) -> Schedule:
    """Stores to as many elements as `extent`."""
    r = b.range_(extent, 0, AxisType.LOOP)
    out = b.param(0, (300,), dt.int32)
    found = create_initial_schedule(b.sink(b.end(b.store(b.at(out, r), b.const(7)), r)))
    assert found is not None
    return found


def extents() -> list[UOp]:
    return [b.index(12), b.mul(b.variable("n", 1, 9), FACTOR)]


def position(s: Schedule) -> UOp:
    """Where the kernel stores."""
    (index,) = [u for u in toposort(s.effect) if u.op is Op.INDEX]
    return index.src[1]


def loops(s: Schedule) -> dict[str, UOp]:
    """The loops of a kernel by letter: o the old one, e the new one."""
    old, new = sorted(s.outputs, key=lambda r: int(r.arg.axis_id))
    return {"o": old, "e": new}


@pytest.mark.parametrize("extent", extents(), ids=["constant", "symbolic"])
@pytest.mark.parametrize("top", [False, True], ids=["inner", "top"])
def test_the_scheduler_splits_as_the_laws_say(extent: UOp, top: bool) -> None:
    s = apply(kernel(extent), Split(0, FACTOR, AxisType.LOOP, top=top))
    found = loops(s)
    sizes = {"k": b.index(FACTOR), "m": found["o"].src[0]}
    assert found["e"].src[0] is b.index(FACTOR)
    assert position(s) is instantiate(optops.SPLIT_TOP if top else optops.SPLIT, {**found, **sizes})


@pytest.mark.parametrize("n", range(1, 20))
@pytest.mark.parametrize("m", [2, 3, 8])
def test_the_scheduler_pads_as_the_laws_say(n: int, m: int) -> None:
    s = apply(kernel(b.index(n)), Padto(0, m))
    (r,) = s.outputs
    assert r.src[0].const == ((n + (m - 1)) // m) * m
    gates = [u.src[2] for u in toposort(s.effect) if u.op is Op.STORE and len(u.src) > 2]
    assert gates == ([] if n % m == 0 else [UOp(Op.CMPLT, (r, b.index(n)))])


def test_the_scheduler_pads_a_symbolic_extent_as_the_laws_say() -> None:
    n, m = b.variable("n", 1, 9), b.index(4)
    s = apply(kernel(n), Padto(0, 4))
    (r,) = s.outputs
    quotient, multiple = optops.PADDED.src
    assert multiple.name == "m"
    assert r.src[0] is UOp(Op.MUL, (Rewriter(INDEXING)(instantiate(quotient, {"n": n, "m": m})), m))
    (store,) = [u for u in toposort(s.effect) if u.op is Op.STORE]
    assert store.src[2] is UOp(Op.CMPLT, (r, n))


def test_every_reduce_op_has_its_identity_proved_in_every_dtype_but_max_of_index() -> None:
    names = {r.name for r in optops.MONOIDS}
    wanted = {f"identity-{op.name.lower()}-{d.short}" for op in optops.REDUCES for d in (*dt.STORABLE, dt.index)}
    assert wanted - names == {"identity-max-index"}


def test_every_lane_map_has_its_laws() -> None:
    maps = {(d.map(operand), d.shape(operand)) for d in DESCRIPTORS for operand in "ABC"}
    assert len(optops.LANES) == 2 * len(maps)


# Near misses

i, m, n, o, e, k, p, f = (var(name, INDEX) for name in "imnoekpf")
b8, h = var("v", (dt.int8,)), var("v", (dt.float16,))
NESTED = (o < p) | (eq(o, p) & (e < f))


def within(v: Pattern, extent: object) -> Pattern:
    return (v >= 0) & (v < extent)


WRONG = (
    Rule("split-by-the-other-extent", o * m + e, optops.SPLIT, when=within(o, m) & within(e, k)),
    Rule(
        "split-that-does-not-divide", within(o * k + e, n), as_pattern(True), when=within(o, n // k + 1) & within(e, k) & (n >= 0)
    ),
    Rule("split-loses-the-rest", i < (n // k) * k, i < n, when=within(i, n) & (k > 0)),
    Rule("split-top-as-inner", optops.SPLIT_TOP // k, o, when=within(o, m) & within(e, k)),
    Rule("split-top-keeps-the-inner-order", optops.SPLIT_TOP < f * m + p, NESTED, when=within(o, m) & within(p, m)),
    Rule("padto-without-mask", within(i, optops.PADDED), within(i, n), when=m > 0),
    Rule("padto-mask-off-by-one", within(i, optops.PADDED) & (i <= n), within(i, n), when=m > 0),
    Rule("padto-one-too-many", ((n + m) // m) * m, optops.PADDED, when=m > 0),
    Rule("unroll-one-short", within(i, n + 1), within(i, n), when=n >= 0),
    Rule("zero-pads-max-of-integers", maximum(b8, 0), b8),
    Rule("zero-pads-max-of-floats", maximum(h, 0.0), h),
    Rule("zero-pads-mul", b8 * 0, b8),
    Rule("least-finite-pads-max", maximum(h, -65504.0), h),
    Rule("group-of-differences", (i - m) - (n - o), ((i - m) - n) - o),
)  # fmt: skip


@pytest.fixture(scope="module")
def worker() -> Iterator[SolverWorker]:
    w = SolverWorker(seconds=30.0)
    yield w
    w.close()


@pytest.mark.parametrize("law", WRONG, ids=lambda r: r.name)
def test_a_wrong_law_is_refuted(law: Rule, worker: SolverWorker) -> None:
    (o,) = obligations(law)
    found = decide_obligation(worker, o)
    assert found.status is ProofStatus.REFUTED, found
    seen = replay_counterexample(RuleCounterexample.from_refuted_verdict(law, found))
    assert seen.confirmed, seen.words


def test_a_lane_map_with_two_lanes_in_one_place_is_refuted(worker: SolverWorker) -> None:
    from uops.spec.wmma.maps import affine_map

    good, wrong = affine_map("8:row 4:col*2", "2:col"), affine_map("8:row 4:col", "2:col")
    for a, status in ((good, ProofStatus.PROVED), (wrong, ProofStatus.REFUTED)):
        apart = [law for law in optops._generate_lane_map_laws("mine", a, 8, 8, 1) if law.name == "mine-apart"]
        assert [decide_obligation(worker, o).status for law in apart for o in obligations(law)] == [status]
