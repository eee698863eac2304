"""Plans of a launch in which values share bytes, leave their arena, or are passed twice: each is refuted."""

from uops.backends.registry import create_backend
from uops.compiler import Config
from uops.compiler.pipeline import lower
from uops.compiler.prove.solver.solver import SolverWorker
from uops.compiler.validate.decide import decide_claim
from uops.compiler.validate.launches.plan import generate_plan_claims, list_calls_of_written_kernels
from uops.compiler.validate.model import ObligationKind
from uops.fuzz.bisect.replay_kernel import replay_launches_on_random_memory
from uops.spec.ir import build as b
from uops.spec.ir import dtypes as dt
from uops.spec.ir.node import UOp
from uops.spec.ir.ops import Op
from uops.spec.ir.text import parse

LAUNCH = """
%0 = param (8), slot=0 : f32
%1 = range 8, axis_id=0, type=loop
%2 = index %0, %1
%3 = param (8), slot=1 : f32
%4 = index %3, %1
%5 = load %4
%6 = store %2, %5
%7 = end %6, %1
%8 = sink %7, name="copy"
%9 = param (8), slot=0 : f32
%10 = buffer size=8, device="CPU", addrspace=global, unique=1 : f32
%11 = buffer size=8, device="CPU", addrspace=global, unique=2 : f32
%12 = buffer size=8, device="CPU", addrspace=global, unique=3 : f32
%13 = buffer size=8, device="CPU", addrspace=global, unique=4 : f32
%14 = buffer size=128, device="CPU", addrspace=global, unique=5 : u8
{places}
%17 = call %8, {a}, %10, written=[0]
%18 = call %8, {b}, %10, written=[0]
%19 = call %8, %13, {a}, written=[0]
%20 = call %8, %12, {b}, written=[0]
%21 = linear %17, %18, %19, %20
"""
OTHER = '%15 = buffer size=8, device="CPU", addrspace=global, unique=6 : f32'
PLACES = "%15 = slice %14, 0, size=8 : f32\n%16 = slice %14, {offset}, size=8 : f32"


def test_an_overlapping_plan_is_refuted_and_replays(worker):
    before = parse(LAUNCH.format(places=OTHER, a="%11", b="%15"))
    right, wrong = (parse(LAUNCH.format(places=PLACES.format(offset=o), a="%15", b="%16")) for o in (64, 16))
    assert all(decide_claim(c, worker).is_proved for c in generate_plan_claims(before, right, ()))
    bad = [v for c in generate_plan_claims(before, wrong, ()) if not (v := decide_claim(c, worker)).is_proved]
    assert [v.kind for v in bad] == [ObligationKind.PLAN] and "at the same time" in bad[0].place
    assert (
        replay_launches_on_random_memory(before, wrong).confirmed and not replay_launches_on_random_memory(before, right).confirmed
    )


def test_what_a_call_reads_and_what_it_writes_share_no_bytes(worker):
    chain = LAUNCH.replace("%18 = call %8, {b}, %10", "%18 = call %8, {b}, {a}").replace("%13, {a}, written", "%13, {b}, written")
    before = parse(chain.format(places=OTHER, a="%11", b="%15"))
    right, wrong = (parse(chain.format(places=PLACES.format(offset=o), a="%15", b="%16")) for o in (32, 0))
    assert all(decide_claim(c, worker).is_proved for c in generate_plan_claims(before, right, ()))
    bad = [v for c in generate_plan_claims(before, wrong, ()) if not (v := decide_claim(c, worker)).is_proved]
    assert [v.kind for v in bad] == [ObligationKind.PLAN] and "at the same time" in bad[0].place


def test_two_values_that_one_call_alone_has_share_no_bytes(worker):
    one = LAUNCH.split("%17 =")[0] + "%17 = call %8, {a}, {b}, written=[0, 1]\n%18 = linear %17"
    before = parse(one.format(places=OTHER, a="%11", b="%15"))
    assert _open(before, parse(one.format(places=PLACES.format(offset=32), a="%15", b="%16")), worker) == set()
    overlapping = parse(one.format(places=PLACES.format(offset=16), a="%15", b="%16"))
    assert _open(before, overlapping, worker) == {"buffer 2 and buffer 6 are needed at the same time"}


def test_a_place_beyond_the_arena_and_an_argument_passed_twice_are_refuted(worker):
    before = parse(LAUNCH.format(places=OTHER, a="%11", b="%15"))
    beyond = parse(LAUNCH.format(places=PLACES.format(offset=112), a="%15", b="%16"))
    assert _open(before, beyond, worker) == {"buffer 6 is inside of its arena"}
    twice = parse(LAUNCH.replace("%13, {a}, written", "%13, %13, written").format(places=OTHER, a="%11", b="%15"))
    assert _open(twice, twice, worker) == {"call 2 writes argument 0 and has it once"}


def test_a_kernel_written_by_hand_may_have_one_memory_twice(worker):
    twice = LAUNCH.replace("%13, {a}, written", "%13, %13, written").format(places=OTHER, a="%11", b="%15")
    by_hand = parse(twice.replace('name="copy"', 'name="copy", scheduled=true'))
    assert list_calls_of_written_kernels(by_hand) == [0, 1, 2, 3]
    assert list_calls_of_written_kernels(parse(twice)) == []
    assert all(decide_claim(c, worker).is_proved for c in generate_plan_claims(by_hand, by_hand, (), [2]))
    others = [c for c in generate_plan_claims(by_hand, by_hand, (), [0, 1, 3]) if not decide_claim(c, worker).is_proved]
    assert [c.place for c in others] == ["call 2 writes argument 0 and has it once"]


def test_copies_of_arguments_are_intermediates():
    """A part of a memory, from a place that a variable says, is passed as a copy, which the caller does not see."""
    i, memory = b.range_(4, 0), b.buffer(8, dt.int32, unique=1)
    body = b.sink(b.end(b.store(b.at(b.param(0, (4,), dt.int32), i), b.const(1, dt.int32)), i), name="ones")
    graph = b.after(memory, b.call(body, b.shrink(memory, [b.variable("first", 0, 4)], [4]), written=(0,)))
    program = lower(graph, create_backend("c").target, upto="plan", config=Config(reuse=False, validate=True))
    assert any(a.op is Op.SLICE for call in program.src for a in call.arguments)


def test_what_the_caller_sees_keeps_its_place(worker):
    before = parse(LAUNCH.format(places=OTHER, a="%11", b="%15"))
    after = parse(LAUNCH.format(places=PLACES.format(offset=64), a="%15", b="%16"))
    assert _open(before, after, worker, external=(1, 3)) == set()
    assert _open(before, after, worker, external=(2, 3)) == {"buffer 2 is not the caller's"}


def test_an_arena_that_is_the_callers_or_passed_whole_is_refuted(worker):
    before = parse(LAUNCH.format(places=OTHER, a="%11", b="%15"))
    places = "%15 = slice %10, 0, size=8 : f32\n%16 = slice %14, 0, size=8 : f32"
    after = parse(LAUNCH.format(places=places, a="%15", b="%16"))
    assert _open(before, after, worker) == {"the arena buffer 1 holds intermediates alone"}
    right = parse(LAUNCH.format(places=PLACES.format(offset=64), a="%15", b="%16"))
    assert _open(before, right, worker, external=(5,)) == {"the arena buffer 5 holds intermediates alone"}


def test_a_value_in_an_arena_that_a_call_passes_whole_is_refuted(worker):
    before = parse(LAUNCH.format(places=OTHER, a="%11", b="%15"))
    places = f"{OTHER}\n%16 = slice %14, 0, size=8 : f32\n%22 = slice %14, 64, size=8 : f32"
    after = parse(LAUNCH.replace("%20 = call %8, %12, {b}", "%20 = call %8, %12, %22").format(places=places, a="%16", b="%15"))
    assert _open(before, after, worker) == {"buffer 6 is passed in its place alone"}


def _open(before: UOp, after: UOp, worker: SolverWorker, external: tuple[int, ...] = ()) -> set[str]:
    return {v.place for v in (decide_claim(c, worker) for c in generate_plan_claims(before, after, external)) if not v.is_proved}
