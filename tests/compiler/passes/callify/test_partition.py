"""Graphs on several devices become graphs whose nodes are on one device each, and mean the same (R72 to R76)."""

from __future__ import annotations

import numpy as np
import pytest

import uops
from uops.backends.conformance.cases import generate_cases
from uops.backends.conformance.model import ConformanceTier
from uops.backends.contract import DEVICES_SURFACE
from uops.backends.registry import create_backend
from uops.compiler.config import Config
from uops.compiler.passes.callify.partition import is_range_of_memory, partition_over_devices
from uops.compiler.pipeline import lower
from uops.compiler.runtime.program import Compiled
from uops.interp import run
from uops.spec.errors import CompileError
from uops.spec.ir import build as b
from uops.spec.ir import dtypes as dt
from uops.spec.ir.axes import AxisType
from uops.spec.ir.node import UOp, nodes_with_op, toposort
from uops.spec.ir.ops import Op
from uops.spec.rows.collectives import COLLECTIVES
from uops.spec.verify.dialects import Dialect
from uops.spec.verify.infer import infer_tensor_kernel_or_bestiary_dialect

D = ("D0", "D1", "D2")
X = b.param(0, (6, 4), dt.int32, D, 0)
INPUTS = {"p0": np.arange(24, dtype=np.int32).reshape(6, 4)}


def partition(root: UOp) -> UOp:
    """Partition a graph, and check that each node is on one device and that only Loads join devices."""
    parted = partition_over_devices(root, 100).root
    for u in toposort(parted):
        assert not isinstance(u.device, tuple)
        if u.op is not Op.LOAD and u.op is not Op.TUPLE and u.dtype is not dt.void:
            assert len({s.device for s in u.src if s.dtype is not dt.void} - {None}) <= 1
    return parted


def sent(parted: UOp) -> list[tuple[str, str, int]]:
    """Return (from, to, elements) of each copy between devices."""
    loads = [u for u in nodes_with_op(parted, Op.LOAD) if u.arg.device not in (None, u.buffer.device)]
    return sorted((str(u.buffer.device), str(u.arg.device), int(np.prod(u.shape))) for u in loads)


def test_a_graph_on_one_device_is_the_same_node() -> None:
    plain = b.copy(b.param(0, (4,), dt.int32), "D1")
    assert partition_over_devices(plain, 1).root is plain


def test_ops_on_parts_send_nothing() -> None:
    y = b.reduce(b.permute(b.add(X, b.flip(X, (False, True))), (1, 0)), Op.ADD, (0,))
    copies = sent(partition(b.copy(y, "D1")))
    assert copies == [("D0", "D1", 2), ("D2", "D1", 2)]


def test_a_param_that_nothing_writes_is_read_where_it_is() -> None:
    """And it is one argument of the program, though several devices read it."""
    whole = b.param(1, (6, 4), dt.int32)
    shards = b.permute(b.copy(b.permute(whole, (1, 0)), ("D0", "D1")), (1, 0))
    assert sent(partition(b.tuple_(shards, b.copy(X, "D1"), b.copy(whole, "D1")))) == []
    assert sent(partition(b.tuple_(X, b.copy(b.param(1, (4,), dt.int32, "D0"), "D1")))) == [("D0", "D1", 4)]
    program = uops.compile(b.tuple_(b.add(X, 1), shards), "c")
    assert program.keys == ("p0", "p1")
    found = program({**INPUTS, "p1": -INPUTS["p0"]})
    assert np.array_equal(found.values[0], INPUTS["p0"] + 1) and np.array_equal(found.values[1], -INPUTS["p0"])


@pytest.mark.parametrize("n", [2, 3, 4])
def test_an_allreduce_sends_each_device_no_more_than_it_must(n: int) -> None:
    """At most 2(n-1)/n of the data of a device."""
    devices = tuple(f"D{k}" for k in range(n))
    size = 12 * n
    total = COLLECTIVES["allreduce"](b.buffer(size, dt.int32, devices, unique=1), devices)
    copies = sent(partition(b.tuple_(*[b.copy(total, device) for device in devices])))
    for device in devices:
        assert sum(count for source, target, count in copies if target == device and source != "CPU") == 2 * (n - 1) * size // n


def test_whole_memory_is_sent_as_it_is() -> None:
    x = b.param(0, (6, 4), dt.int32)
    assert is_range_of_memory(b.reshape(x, (24,)))
    assert is_range_of_memory(b.shrink(b.reshape(x, (1, 6, 4)), (0, 2, 0), (1, 3, 4)))
    assert not is_range_of_memory(b.shrink(x, (0, 1), (6, 2)))
    assert not is_range_of_memory(b.permute(x, (1, 0)))
    assert not is_range_of_memory(b.add(x, x))


def test_what_is_written_goes_back_whole() -> None:
    buffer = b.buffer(2, dt.int32, D, unique=1)
    root = b.after(buffer, b.store(b.after(buffer, b.contiguous(buffer)), b.add(buffer, 1)))
    given = {"b1": np.arange(6, dtype=np.int32)}
    for backend in ("c", "llvm"):
        program = uops.compile(root, backend)
        found = program(given)
        assert found.values[0].tolist() == found.buffers["b1"].tolist() == [1, 2, 3, 4, 5, 6]
        assert given["b1"].tolist() == [0, 1, 2, 3, 4, 5]


def test_each_device_has_an_arena_of_its_own() -> None:
    """A program of many temporaries: no Slice of an arena is passed for memory of another device."""
    y = b.copy(b.contiguous(b.add(b.copy(b.permute(X, (1, 0)), "D0"), 1)), "D1")
    planned = lower(b.tuple_(y, b.reduce(X, Op.ADD, (0,))), create_backend("c").target, "plan")
    arenas = {a.operand for call in planned.instructions for a in call.arguments if a.op is Op.SLICE}
    assert len(arenas) == len({a.device for a in arenas}) > 1


def test_a_param_that_a_kernel_writes_is_copied_before() -> None:
    """R63: a Call writes memory, too. What was read of it before must not be read after."""
    x, i = b.param(0, (6,), dt.int32), b.range_(6, 0)
    p = b.param(0, (6,), dt.int32)
    negated = b.sink(b.end(b.store(b.at(p, i), b.neg(b.load(b.at(p, i)))), i), name="negate")
    before = b.copy(x, D)
    after = b.after(x, b.call(negated, b.after(x, before), written=(0,)))
    given = {"p0": np.arange(6, dtype=np.int32)}
    want = run(b.tuple_(before, after), given)
    for queues in ("always", "never"):
        found = Compiled(b.tuple_(before, after), create_backend("c").target, Config(reuse=False, queues=queues))(given)
        assert (
            [v.tolist() for v in found.values] == [v.tolist() for v in want.values] == [[0, 1, 2, 3, 4, 5], [0, -1, -2, -3, -4, -5]]
        )


@pytest.mark.parametrize("backend", ["c", "llvm"])
def test_a_copy_that_one_store_uses_is_read_before_its_memory_changes(backend: str) -> None:
    """The Store puts the copy into place after another Store has changed the memory that it is a copy of."""
    x, y = b.buffer(4, dt.int32, "D0", unique=1), b.buffer(4, dt.int32, "D1", unique=2)
    sent = b.copy(x, "D1")
    changed = b.after(x, b.store(b.after(x, sent), b.expand(b.reshape(b.const(7), (1,)), (4,))))
    received = b.after(y, b.store(y, sent))
    given = {"b1": np.arange(4, dtype=np.int32), "b2": np.zeros(4, np.int32)}
    want = run(b.tuple_(changed, received), given)
    found = uops.compile(b.tuple_(changed, received), backend)(given)
    assert [v.tolist() for v in found.values] == [v.tolist() for v in want.values] == [[7, 7, 7, 7], [0, 1, 2, 3]]


@pytest.mark.parametrize(
    ("root", "words"),
    [
        (b.copy(b.param(0, (b.mul(b.variable("n", 1, 4), 3), 2), dt.int32), D), "a constant that is a multiple of 3"),
        (
            b.call(
                b.sink(
                    b.end(b.store(b.at(b.param(0, (6,), dt.int32), b.range_(6, 0, AxisType.LOOP)), b.const(1)), b.range_(6, 0)),
                    name="k",
                ),
                b.buffer(2, dt.int32, D, unique=1),
            ),
            "a kernel written by hand is on one device",
        ),
    ],
    ids=["symbolic axis", "kernel"],
)
def test_what_cannot_be_partitioned_is_refused_with_its_place(root: UOp, words: str) -> None:
    with pytest.raises(CompileError, match=words):
        partition_over_devices(root, 100)


@pytest.mark.parametrize("backend", ["c", "llvm"])
def test_a_reduce_along_the_axis_is_the_same_on_each_device(backend: str) -> None:
    total = b.reduce(b.cast(X, dt.float32), Op.ADD, (0,))
    on_each = b.tuple_(*[b.copy(total, device) for device in D], total)
    want = run(on_each, INPUTS).values
    for found, expected in zip(uops.compile(on_each, backend)(INPUTS).values, want, strict=True):
        assert found.tobytes() == expected.tobytes()


def test_the_program_after_callify_is_legal() -> None:
    lowered = lower(b.reduce(X, Op.ADD, (0,)), create_backend("c").target, "callify")
    from uops.spec.verify.verifier import verify

    verify(lowered, Dialect.CALLIFIED)


def test_every_stage_of_the_cases_on_several_devices_keeps_its_claims() -> None:
    """A replicated index beside a sharded axis was on another device than what it indexed."""
    target = create_backend("llvm", tier="fast").target
    cases = [c for c in generate_cases(ConformanceTier.SMOKE) if c.surface == DEVICES_SURFACE]
    assert len(cases) > 300
    for case in [*cases[::6], *(c for c in cases if c.name == "vector-beside-axis")]:
        lower(
            case.graph, target, "linearize", config=Config(verify=True), dialect=infer_tensor_kernel_or_bestiary_dialect(case.graph)
        )


def test_a_sharded_axis_of_no_elements_is_distributed_again() -> None:
    empty = b.copy(b.param(0, (0, 3), dt.int32), ("CPU:1", "CPU:2"))
    again = b.copy(b.copy(empty, ("CPU:3", "CPU:4")), "CPU")
    inputs = {"p0": np.zeros((0, 3), np.int32)}
    partition(again)
    assert uops.compile(again, "llvm")(inputs).values[0].shape == run(again, inputs).values[0].shape == (0, 3)
