"""The reducer: what it gives still fails, is well-formed, and is small; the first sample's inputs are kept where they matter."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator
from itertools import islice

import numpy as np
import pytest

from uops.backends.answer import collect_caller_input_nodes
from uops.backends.arrays import STORAGE
from uops.backends.registry import BrokenBackend
from uops.fuzz.generate import kinds
from uops.fuzz.generate.kinds import ProgramSample
from uops.fuzz.reduce.reduce import _make_key_of_elements, is_well_formed_and_evaluates, measure_sample, reduce_sample
from uops.fuzz.reduce.reproducer import count_nodes
from uops.fuzz.reduce.shrinks import (
    SHRINKS,
    drop_optops,
    replace_buffer_or_reshaped_memory_by_param,
    replace_dtype,
    resize_extent,
    simplify_input_values,
)
from uops.interp import run
from uops.spec.errors import Unsound, UopsError
from uops.spec.ir import build as b
from uops.spec.ir import dtypes as dt
from uops.spec.ir.args import AddrSpace
from uops.spec.ir.dtypes import DType
from uops.spec.ir.node import UOp, toposort
from uops.spec.ir.ops import Op
from uops.spec.result import Result
from uops.spec.verify.dialects import Dialect
from uops.spec.verify.verifier import verify


def has(*ops: Op) -> Callable[[ProgramSample], bool]:
    """A planted bug: every op of these is in the program."""
    return lambda s: set(ops) <= {u.op for u in toposort(s.graph)}


def drawn(fails: Callable[[ProgramSample], bool], count: int, least: int = 8) -> list[ProgramSample]:
    every = (kinds.sample(9, k, ("tensor", "programs", "bodies")) for k in range(4000))
    return [s for s, _ in zip((s for s in every if count_nodes(s) >= least and fails(s)), range(count))]


@pytest.mark.parametrize(
    ("ops", "nodes"),
    [((Op.MUL,), 2), ((Op.REDUCE,), 2), ((Op.FLIP, Op.PAD), 5), ((Op.WHERE, Op.ADD), 4), ((Op.STORE,), 3), ((Op.FUNCTION,), 4)],
    ids=lambda x: "+".join(o.name.lower() for o in x) if isinstance(x, tuple) else "",
)
def test_a_program_is_reduced_to_what_matters(ops: tuple[Op, ...], nodes: int) -> None:
    found = drawn(has(*ops), 9)
    smalls = [reduce_sample(s, has(*ops), max_questions=300) for s in found]
    assert sorted(map(count_nodes, smalls))[4] <= nodes
    for s, small in zip(found, smalls, strict=True):
        assert has(*ops)(small)
        assert measure_sample(small) < measure_sample(s)
        verify(small.graph, Dialect.TENSOR)
        run(small.graph, small.inputs)


def test_what_the_interpreter_objects_to_is_reduced(monkeypatch: pytest.MonkeyPatch) -> None:
    """A finding of which its own evaluation is the complaint."""
    divides = has(Op.IDIV)

    def objects(graph: UOp, inputs: dict[str, object]) -> Result:
        if divides(ProgramSample("tensor", graph, inputs)):
            raise Unsound("bounds of a quotient")
        return run(graph, inputs)

    found = drawn(divides, 5)
    monkeypatch.setattr("uops.fuzz.reduce.reduce.run", objects)
    smalls = [reduce_sample(s, divides, max_questions=300) for s in found]
    assert all(map(divides, smalls))
    assert sorted(map(count_nodes, smalls))[2] <= 4


def stored_again(s: ProgramSample) -> bool:
    """A planted bug: a Store to what was stored to before."""
    return any(u.op is Op.STORE and any(x.op is Op.STORE for x in toposort(u.src[0])) for u in toposort(s.graph))


def test_a_program_of_many_statements_loses_most_of_them_in_few_questions() -> None:
    every = (kinds.sample(9, k, ("programs",)) for k in range(400))
    found = [s for s, _ in zip((s for s in every if count_nodes(s) > 40 and stored_again(s)), range(8))]
    smalls = [reduce_sample(s, stored_again, max_questions=25) for s in found]
    assert sum(map(count_nodes, smalls)) < 20 * len(smalls)
    assert all(map(stored_again, smalls))


@pytest.mark.parametrize(("ops", "nodes"), [((Op.BARRIER, Op.LOAD), 16), ((Op.REDUCE,), 10), ((Op.STORE,), 8)])
def test_a_launch_is_reduced_to_what_matters(ops: tuple[Op, ...], nodes: int) -> None:
    every = (kinds.sample(9, k, ("kernels",)) for k in range(200))
    for s, _ in zip((s for s in every if count_nodes(s) >= 50 and has(*ops)(s)), range(3)):
        small = reduce_sample(s, has(*ops), max_questions=100)
        assert count_nodes(small) <= nodes
        assert has(*ops)(small)
        verify(small.graph, Dialect.SCHEDULED)
        run(small.graph, small.inputs)


def test_memory_of_a_kernel_is_no_input_of_the_same_number() -> None:
    """LOCAL memory 1 beside the Buffer 1 of the launch, of another size."""
    every = [kinds.sample(12, k, ("kernels",)) for k in range(60)]
    local = {u: s for s in every for u in toposort(s.graph) if u.op is Op.BUFFER and u.arg.addrspace is AddrSpace.LOCAL}
    assert any(np.size(s.inputs[f"b{u.arg.unique}"]) != u.arg.size for u, s in local.items() if f"b{u.arg.unique}" in s.inputs)
    for u, s in local.items():
        assert all(u in toposort(c.graph) for c in replace_buffer_or_reshaped_memory_by_param(s))


def test_extents_values_and_dtypes_shrink_too() -> None:
    graph = b.add(b.mul(b.param(0, (7, 5), dt.int64), 3), b.param(1, (7, 5), dt.int64))
    inputs = {"p0": np.arange(35).reshape(7, 5), "p1": np.arange(35).reshape(7, 5) * 1000}

    def fails(s: ProgramSample) -> bool:  # where an addend is odd
        value, *others = run(s.graph, s.inputs).values
        return not others and any(u.op is Op.ADD for u in toposort(s.graph)) and bool((value % 2 == 1).any())

    small = reduce_sample(ProgramSample("tensor", graph, inputs), fails)
    assert small.graph.dtype is dt.int32
    assert all(np.size(v) == 1 for v in small.inputs.values())
    assert sum(int(np.count_nonzero(v)) for v in small.inputs.values()) == 1


def test_a_constant_becomes_0_or_1_unless_the_finding_needs_it() -> None:
    def multiplies_by_a_number(s: ProgramSample) -> bool:
        return any(u.op is Op.MUL and u.rhs.op is Op.CONST and u.rhs.const != 0 for u in toposort(s.graph))

    x = b.param(0, (2,), dt.int32)
    sample = ProgramSample("tensor", b.mul(x, b.const(7, dt.int32)), {"p0": np.array([5, 6], np.int32)})
    assert [
        u.const for u in toposort(reduce_sample(sample, multiplies_by_a_number).graph) if u.op is Op.CONST and u.dtype is dt.int32
    ] == [1]
    root = ProgramSample("tensor", b.const(7, dt.int32), {})
    assert reduce_sample(root, lambda s: s.graph.op is Op.CONST).graph is b.const(0, dt.int32)


def test_memory_gives_way_to_what_is_stored_there() -> None:
    buf = b.buffer(4, dt.float32, unique=1000)
    written = b.after(buf, b.store(b.reshape(buf, (2, 2)), b.cast(b.neg(b.param(0, (2, 2), dt.int32)), dt.float32)))
    sample = ProgramSample("tensor", b.flip(written, [True]), {"b1000": np.zeros(4, np.float32), "p0": np.ones((2, 2), np.int32)})
    small = reduce_sample(sample, has(Op.NEG, Op.FLIP))
    assert not has(Op.STORE)(small)
    assert count_nodes(small) <= 5


def test_two_values_that_a_finding_needs_are_all_that_is_left() -> None:
    x, y = b.param(0, (3,), dt.int32), b.param(1, (3,), dt.float32)
    chosen = b.where(b.lt(b.flip(x, [True]), 2), y, b.neg(b.sqrt(y)))
    small = reduce_sample(
        ProgramSample("tensor", chosen, {"p0": np.arange(3, dtype=np.int32), "p1": np.ones(3, np.float32)}), has(Op.FLIP, Op.SQRT)
    )
    assert count_nodes(small) <= 4


def test_an_index_that_is_cast_gives_way_to_what_it_is_cast_to() -> None:
    x = b.param(0, (3,), dt.int32)
    sums = b.cast(UOp(Op.ADD, (b.cast(x, dt.index), b.index(3))), dt.int32)
    small = reduce_sample(ProgramSample("tensor", sums, {"p0": np.arange(3, dtype=np.int32)}), has(Op.ADD))
    assert not has(Op.CAST)(small)


def test_an_output_gives_way_to_what_it_is_made_of() -> None:
    x = b.param(0, (3,), dt.int32)
    padded = b.pad(x, (1,), (5,))
    graph = b.tuple_(b.cast(b.reduce(padded, Op.ADD, (0,)), dt.float32), b.flip(b.neg(x), (True,)))
    small = reduce_sample(ProgramSample("tensor", graph, {"p0": np.arange(3, dtype=np.int32)}), has(Op.PAD, Op.TUPLE, Op.FLIP))
    assert count_nodes(small) == 4
    assert {u.op for u in small.graph.src} == {Op.PAD, Op.FLIP}


def test_a_schedule_shrinks_to_the_optops_that_matter() -> None:
    s = ProgramSample(
        "tensor", b.add(b.param(0, (4,), dt.int32), 1), {"p0": np.arange(4, dtype=np.int32)}, "0:a; 0:b; 0:c; 1:d; 1:e"
    )
    small = reduce_sample(s, lambda c: "0:b" in c.opts and "1:e" in c.opts)
    assert [p.strip() for p in small.opts.split(";")] == ["0:b", "1:e"]


def test_a_schedule_loses_all_its_optops_or_is_drawn() -> None:
    s = ProgramSample("tensor", b.add(b.param(0, (), dt.int32), 1), {"p0": np.zeros((), np.int32)}, "0:a; 0:b")
    assert reduce_sample(s, lambda c: True).opts == ""
    assert reduce_sample(s._replace(opts=None), lambda c: True).opts is None
    assert next(drop_optops(s)).opts == ""
    assert [*drop_optops(s._replace(opts="")), *drop_optops(s._replace(opts=None))] == []


def test_a_sample_that_cannot_shrink_stays() -> None:
    s = ProgramSample("tensor", b.param(0, (), dt.float32), {"p0": np.zeros((), np.float32)})
    assert reduce_sample(s, lambda c: True) == s


def test_the_number_of_questions_is_bounded() -> None:
    asked = 0

    def fails(s: ProgramSample) -> bool:
        nonlocal asked
        asked += 1
        return asked % 7 == 0

    reduce_sample(drawn(has(Op.ADD), 1, 14)[0], fails, max_questions=25)
    assert asked <= 25


@pytest.mark.parametrize("most", [40, 500])
def test_what_does_not_fail_again_is_not_what_a_reduction_gives(most: int) -> None:
    """Of a bug that shows now and then, a small program may have shown it by chance."""
    s = drawn(has(Op.ADD), 1, 14)[0]
    left, asked = 1, []

    def sometimes(c: ProgramSample) -> bool:
        nonlocal left
        left -= 1
        asked.append(c)
        return left >= 0

    assert reduce_sample(s, sometimes, most, sometimes) is s
    assert len(asked) <= most
    assert measure_sample(asked[-1]) < measure_sample(s)
    small = reduce_sample(s, has(Op.ADD), most, has(Op.ADD))
    assert has(Op.ADD)(small) and count_nodes(small) < count_nodes(s)


def test_where_the_smallest_does_not_fail_again_a_larger_one_does() -> None:
    s = drawn(has(Op.ADD), 1, 14)[0]
    sizes = []

    def again(c: ProgramSample) -> bool:
        sizes.append(count_nodes(c))
        return len(sizes) == 3

    small = reduce_sample(s, has(Op.ADD), fails_in_fresh_process=again)
    assert has(Op.ADD)(small)
    assert count_nodes(small) == sizes[2]
    assert sizes == sorted(set(sizes)) and sizes[0] < count_nodes(s)


def test_a_shrink_that_raises_ends_no_reduction(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(s: ProgramSample) -> Iterator[ProgramSample]:
        yield s
        raise TypeError("a shrink of something that it does not know")

    monkeypatch.setattr("uops.fuzz.reduce.reduce.SHRINKS", (broken, *SHRINKS))
    assert statistics.median(count_nodes(reduce_sample(s, has(Op.MUL))) for s in drawn(has(Op.MUL), 5)) <= 2


@pytest.mark.parametrize("error", [BrokenBackend("no such device"), ValueError("whatever")])
def test_what_the_question_raises_is_not_hidden(error: Exception) -> None:
    """A backend that cannot be had says nothing of a program."""

    def asks(s: ProgramSample) -> bool:
        raise error

    with pytest.raises(type(error), match=str(error)):
        reduce_sample(drawn(has(Op.MUL), 1)[0], asks)


def test_no_shrink_meets_a_program_that_it_does_not_know() -> None:
    """Symbolic extents, bodies, kernels, the second document: what is built may be ill-formed, and that is all."""
    raised = set()
    for kind in ("symbolic", "bodies", "kernels", "bestiary"):
        for s in (kinds.sample(99, k, (kind,)) for k in range(16)):
            for shrink in SHRINKS:
                try:
                    list(islice(shrink(s), 12))
                except UopsError:
                    continue
                except Exception as e:
                    raised.add((kind, shrink.__name__, repr(e)))
    assert not raised


def test_memory_beside_views_with_symbolic_extents_is_replaced() -> None:
    n = b.variable("n", 1, 4)
    x, buf = b.param(0, (n,), dt.int32), b.buffer(2, dt.int32, unique=1000)
    graph = b.tuple_(b.reshape(x, (1, n)), b.neg(b.reshape(buf, (2, 1))))
    s = ProgramSample("symbolic", graph, {"n": 3, "p0": np.arange(3, dtype=np.int32), "b1000": np.arange(2, dtype=np.int32)})
    found = list(replace_buffer_or_reshaped_memory_by_param(s))
    assert [c.inputs.keys() for c in found] == [{"n", "p0", "p1"}] * 2
    assert [c.inputs["p1"].shape for c in found] == [(2,), (2, 1)]
    assert all(map(is_well_formed_and_evaluates, found))


def test_what_a_reduced_program_does_not_take_is_no_input_of_it() -> None:
    """Params of bodies are bound, and LOCAL memory is the kernel's."""
    for kind, op in (("bodies", Op.FUNCTION), ("kernels", Op.LOAD), ("bestiary", Op.B_LOAD)):
        every = (kinds.sample(9, k, (kind,)) for k in range(200))
        for s, _ in zip((s for s in every if has(op)(s)), range(6)):
            small = reduce_sample(s, has(op), max_questions=60)
            assert small.inputs == kinds.select_graph_inputs(small.graph, small.inputs)
            assert kind == "bestiary" or small.inputs.keys() <= collect_caller_input_nodes(small.graph).keys()


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(("d", "mantissa"), [(dt.float16, 10), (dt.bfloat16, 7), (dt.float32, 23), (dt.float64, 52)])
def test_a_signalling_nan_is_something_and_no_warning(d: DType, mantissa: int) -> None:
    words = np.zeros(8, f"u{d.itemsize}")
    words[5] = (1 << (d.bits - 1)) - (1 << mantissa) + 1
    s = ProgramSample("tensor", b.neg(b.param(0, (8,), d)), {"p0": words.view(STORAGE[d])})
    assert measure_sample(s).weight == 64 + d.bits - mantissa
    values = [c.inputs["p0"].view(words.dtype) for c in simplify_input_values(s)]
    assert [int(np.count_nonzero(v)) for v in values] == [0, 8, 0, 0, 0]


def test_every_candidate_of_every_shrink_is_a_sample_or_is_thrown_away() -> None:
    sound_ones = 0
    for s in drawn(has(Op.ADD), 6):
        for shrink in SHRINKS:
            for c in list(shrink(s))[:12]:
                sound_ones += is_well_formed_and_evaluates(c)
    assert sound_ones > 100


def test_resizing_keeps_the_first_elements() -> None:
    x = b.param(0, (4, 6), dt.int32)
    graph: UOp = b.flip(b.pad(x, (1, 0), (6, 6)), (True, False))
    s = ProgramSample("tensor", graph, {"p0": np.arange(24, dtype=np.int32).reshape(4, 6)})
    small = resize_extent(s, 6, 3)
    assert small.graph.shape == (3, 3)
    assert small.inputs["p0"].tolist() == [[0, 1, 2], [6, 7, 8], [12, 13, 14], [18, 19, 20]]
    assert replace_dtype(s, dt.int32, dt.float32).graph.dtype is dt.float32


def test_a_list_of_instructions_stays_one() -> None:
    """The dialect of the program around it does not ask how the body of a Call is formed."""
    samples = (kinds.sample(9, k, ("calls",)) for k in range(200))
    s = next(s for s in samples if any(u.op is Op.LINEAR for u in toposort(s.graph)))
    linear = next(u for u in toposort(s.graph) if u.op is Op.LINEAR)
    twice = linear.replace(src=(*linear.src, linear.src[0]))
    broken = s._replace(graph=_replaced(s.graph, linear, twice))
    verify(broken.graph, Dialect.TENSOR)
    assert is_well_formed_and_evaluates(s, must_evaluate=False)
    assert not is_well_formed_and_evaluates(broken, must_evaluate=False)


def _replaced(root: UOp, old: UOp, new: UOp) -> UOp:
    done: dict[UOp, UOp] = {}
    for u in toposort(root):
        done[u] = new if u is old else u.replace(src=tuple(done[x] for x in u.src))
    return done[root]


def test_memory_stays_on_its_device() -> None:
    memory, param = b.buffer(4, dt.float64, "GPU", unique=3), b.param(0, (4,), dt.float64, "GPU")
    s = ProgramSample("tensor", b.add(memory, param), {"b3": np.ones(4), "p0": np.ones(4)})
    for candidate in (resize_extent(s, 4, 2), replace_dtype(s, dt.float64, dt.float32)):
        assert candidate is not None
        devices = {u.device for u in toposort(candidate.graph) if u.op in (Op.BUFFER, Op.PARAM)}
        assert devices == {"GPU"}


def test_arrays_of_equal_elements_have_one_key() -> None:
    one, equal, other = (np.array([int(str(1 << k))], object) for k in (70, 70, 71))
    assert _make_key_of_elements(one) == _make_key_of_elements(equal) != _make_key_of_elements(other)
