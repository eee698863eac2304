"""What bodies of kernels written by hand become: gates, vectors that read what they write, fragments, lists."""

import numpy as np
import pytest

import uops
from uops.compiler.passes.callify.kernel_forms import replace_params_and_lower_unscheduled_kernel
from uops.spec.errors import CompileError
from uops.spec.ir import build as b
from uops.spec.ir import dtypes as dt
from uops.spec.ir.args import AddrSpace, ReduceArg, SpecialArg, WmmaArg
from uops.spec.ir.node import UOp, nodes_with_op
from uops.spec.ir.ops import Op


def _loads(body):
    return nodes_with_op(replace_params_and_lower_unscheduled_kernel(body, {}), Op.LOAD)


@pytest.mark.parametrize(("iterations", "is_gated"), [(4, False), (5, True)])
def test_a_load_that_may_be_one_element_outside_is_gated(iterations, is_gated):
    out, p, r = b.param(0, (5,), dt.int32), b.param(1, (4,), dt.int32), b.range_(iterations, 0)
    (load,) = _loads(b.sink(b.end(b.store(b.at(out, r), b.load(b.at(p, r))), r), name="k"))
    assert (load.gate is not None) is is_gated


def test_a_gated_load_that_may_be_outside_is_gated_by_both():
    out, p, r = b.param(0, (5,), dt.int32), b.param(1, (4,), dt.int32), b.range_(5, 0)
    g = b.param(2, (5,), dt.bool_)
    value = b.load(b.at(p, r), b.const(7, dt.int32), b.load(b.at(g, r)))
    body = b.sink(b.end(b.store(b.at(out, r), value), r), name="k")
    gates = [u.gate for u in _loads(body) if u.gate is not None]
    assert [u.op for u in gates] == [Op.AND]
    y = uops.compile(body, "llvm")({"p0": np.zeros(5, np.int32), "p1": np.arange(4, dtype=np.int32), "p2": np.ones(5, np.bool_)})
    assert y.buffers["p0"].tolist() == [0, 1, 2, 3, 7]


def test_a_list_of_instructions_may_get_one_memory_twice():
    out, p, q = (b.param(k, (4,), dt.int32) for k in range(3))
    instructions = [out, p, q]
    for k in range(4):
        at_p, at_q, at_out = b.at(p, k), b.at(q, 3 - k), b.at(out, k)
        x, y = b.load(at_p), b.load(at_q)
        total = b.add(x, y)
        instructions += [at_p, x, at_q, y, total, at_out, b.store(at_out, total)]
    memory, values = b.buffer(4, dt.int32, unique=1), b.buffer(4, dt.int32, unique=2)
    call = b.call(UOp(Op.LINEAR, tuple(instructions)), memory, values, values, written=(0,))
    x = {"b2": np.arange(4, dtype=np.int32)}
    assert uops.compile(b.contiguous(b.after(memory, call)), "llvm")(x).values[0].tolist() == [3, 3, 3, 3]


def test_a_reduce_of_a_vector_with_effects_in_its_inner_loop_is_refused():
    out, i, j = b.param(0, (2,), dt.int32), b.range_(2, 0), b.range_(3, 1)
    register = b.buffer(1, dt.int32, addrspace=AddrSpace.REG, unique=1)
    x = b.load(b.at(b.after(register, b.store(b.at(register, 0), b.cast(j, dt.int32))), 0))
    total = UOp(Op.REDUCE, (b.stack(x, b.add(x, b.cast(i, dt.int32))), i, j), ReduceArg(Op.ADD))
    with pytest.raises(CompileError, match="a Reduce of a vector has effects in its loops"):
        replace_params_and_lower_unscheduled_kernel(b.sink(b.store(out, total), name="k"), {})


def _wmma(a, c):
    n, m, k = 8, 8, 4
    arg = WmmaArg("mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64", (n, m, k), dt.float64, dt.float64, "CPU", 32)
    return UOp(Op.WMMA, (a, b.stack(b.const(1.0, dt.float64)), c), arg)


def test_a_gated_store_of_a_product_to_registers_keeps_its_gate():
    registers = b.buffer(2, dt.float64, addrspace=AddrSpace.REG, unique=1)
    gate = b.load(b.at(b.param(0, (1,), dt.bool_), 0))
    product = _wmma(b.stack(b.const(1.0, dt.float64)), b.stack(*[b.const(0.0, dt.float64)] * 2))
    written = replace_params_and_lower_unscheduled_kernel(b.sink(b.store(registers, product, gate), name="k"), {})
    stores = [u for u in nodes_with_op(written, Op.STORE) if u.value.op is not Op.WMMA]
    assert stores and all(u.gate is not None for u in stores)


def test_a_gated_load_of_registers_as_a_fragment_keeps_its_gate():
    registers = b.buffer(2, dt.float64, addrspace=AddrSpace.REG, unique=1)
    target = b.buffer(2, dt.float64, addrspace=AddrSpace.REG, unique=2)
    gate = b.load(b.at(b.param(0, (1,), dt.bool_), 0))
    zero = b.expand(b.reshape(b.const(0.0, dt.float64), (1,)), (2,))
    product = _wmma(b.stack(b.const(1.0, dt.float64)), b.load(registers, zero, gate))
    written = replace_params_and_lower_unscheduled_kernel(b.sink(b.store(target, product), name="k"), {})
    (wmma,) = nodes_with_op(written, Op.WMMA)
    assert wmma.accumulator.op is Op.STACK and all(e.gate is not None for e in wmma.accumulator.elements)


def test_a_long_vector_whose_gate_reads_the_target_is_refused():
    p, q = b.param(0, (300,), dt.int32), b.param(1, (300,), dt.int32)
    body = b.sink(b.store(p, q, b.gt(b.flip(p, (True,)), 0)), name="k")
    with pytest.raises(CompileError, match="expected at most 256 elements"):
        uops.compile(body, "llvm")


def test_a_value_waits_for_all_its_effects():
    out, p, q = b.param(0, (1,), dt.int32), b.param(1, (1,), dt.int32), b.param(2, (2,), dt.int32)
    stores = [b.store(b.at(q, k), b.const(k + 5, dt.int32)) for k in range(2)]
    value = b.after(b.add(b.load(b.at(p, 0)), 1), *stores)
    body = b.sink(b.store(b.at(out, 0), value), name="k")
    x = {"p0": np.zeros(1, np.int32), "p1": np.ones(1, np.int32), "p2": np.zeros(2, np.int32)}
    buffers = uops.compile(body, "llvm")(x).buffers
    assert buffers["p0"].tolist() == [2] and buffers["p2"].tolist() == [5, 6]


def test_a_gate_that_reads_the_target_is_read_before_the_first_element_is_written() -> None:
    p = b.param(0, (4,), dt.int32)
    minus_five = b.expand(b.reshape(b.const(-5, dt.int32), (1,)), (4,))
    body = b.sink(b.store(p, minus_five, b.gt(b.flip(p, (True,)), 0)), name="k")
    x = {"p0": np.array([1, 2, -3, 4], np.int32)}
    assert uops.compile(body, "llvm")(x).buffers["p0"].tolist() == uops.run(body, x).buffers["p0"].tolist() == [-5, 2, -5, -5]


def test_positions_that_read_the_target_are_read_before_the_first_element_is_written() -> None:
    p = b.param(0, (4,), dt.int32)
    body = b.sink(b.store(b.at(p, p), b.stack(*[b.const(k, dt.int32) for k in (0, 7, 8, 9)])), name="k")
    x = {"p0": np.array([1, 0, 3, 2], np.int32)}
    assert uops.compile(body, "llvm")(x).buffers["p0"].tolist() == uops.run(body, x).buffers["p0"].tolist() == [7, 0, 9, 8]


def test_an_access_whose_position_becomes_a_constant_stays_in_its_loop() -> None:
    memory, p, r = b.buffer(1, dt.int32, unique=1), b.param(0, (1,), dt.int32), b.range_(3, 0)
    place = b.at(p, b.mul(r, 0))
    body = b.sink(b.end(b.store(place, b.add(place, place)), r), name="k")
    graph = b.after(memory, b.call(body, b.shrink(memory, (0,), (1,)), written=(0,)))
    x = {"b1": np.array([5], np.int32)}
    assert uops.compile(graph, "llvm")(x).values[0].tolist() == uops.run(graph, x).values[0].tolist() == [40]


def _call_on_one_memory_twice(body: UOp, memory: UOp, written: int = 0) -> UOp:
    return b.contiguous(b.after(memory, b.call(body, memory, memory, written=(written,))))


@pytest.mark.parametrize("written", [0, 1])
@pytest.mark.parametrize("write", ["store", "atomic add"])
@pytest.mark.parametrize("n", [8, 64, 256])
def test_a_vector_of_a_memory_that_is_two_arguments_is_read_before_the_first_element_is_written(
    n: int, write: str, written: int
) -> None:
    p, q = (b.param(k, (n,), dt.int32) for k in (written, 1 - written))
    flipped = b.flip(q, (True,))
    effect = b.store(p, flipped) if write == "store" else UOp(Op.ATOMICADD, (p, flipped))
    graph = _call_on_one_memory_twice(b.sink(effect, name="k"), b.buffer(n, dt.int32, unique=1), written)
    x = {"b1": np.arange(n, dtype=np.int32)}
    expected = x["b1"][::-1] if write == "store" else np.full(n, n - 1)
    assert uops.run(graph, x).values[0].tolist() == expected.tolist()
    assert uops.compile(graph, "llvm")(x).values[0].tolist() == expected.tolist()


def test_a_vector_of_a_buffer_of_the_body_that_is_an_argument_too_is_read_before_the_first_element_is_written() -> None:
    n = 64
    p, memory = b.param(0, (n,), dt.int32), b.buffer(n, dt.int32, unique=1)
    call = b.call(b.sink(b.store(p, b.flip(memory, (True,))), name="k"), memory, written=(0,))
    graph = b.contiguous(b.after(memory, call))
    x = {"b1": np.arange(n, dtype=np.int32)}
    assert uops.compile(graph, "llvm")(x).values[0].tolist() == uops.run(graph, x).values[0].tolist() == list(reversed(range(n)))


def test_a_long_vector_of_a_memory_that_is_two_arguments_is_refused() -> None:
    n = 300
    p, q = (b.param(k, (n,), dt.int32) for k in range(2))
    graph = _call_on_one_memory_twice(b.sink(b.store(p, b.flip(q, (True,))), name="k"), b.buffer(n, dt.int32, unique=1))
    with pytest.raises(CompileError, match="expected at most 256 elements"):
        uops.compile(graph, "llvm")


_X, _AT = b.param(1, (4,), dt.int32), b.load(b.at(b.param(2, (1,), dt.int32), 0))


@pytest.mark.parametrize(
    ("element", "gated_memory"),
    [
        pytest.param(b.at(b.add(_X, 1), _AT), {1}, id="index of a value"),
        pytest.param(b.at(b.pad(b.add(_X, 1), (7,), (16,)), _AT), {1}, id="index of a pad of a value"),
        pytest.param(b.load(b.at(b.at(_X, b.param(3, (4,), dt.int32)), _AT)), {1, 3}, id="index of positions"),
        pytest.param(b.at(b.load(b.at(_X, b.param(3, (4,), dt.int32))), _AT), {1, 3}, id="index of a gather"),
        pytest.param(b.at(b.add(_X, b.param(4, (1,), dt.int32)), _AT), {1}, id="index of a broadcast"),
    ],
)
def test_accesses_below_an_index_of_positions_from_data_are_gated(element: UOp, gated_memory: set[int]) -> None:
    loads = _loads(b.sink(b.store(b.at(b.param(0, (1,), dt.int32), 0), element), name="k"))
    assert {u.buffer.operand.arg.slot for u in loads if u.gate is not None} == gated_memory


@pytest.mark.parametrize("position", [0, 6, 7, 10, 11, 15])
def test_an_element_of_a_pad_of_a_value_reads_no_memory_outside(position: int) -> None:
    far = 2**29  # elements of padding, so that an access outside of the memory would end the process
    element = b.at(b.pad(b.add(_X, 1), (far + 7,), (far + 16,)), b.add(b.mul(_AT, far), position))
    memory = b.buffer(1, dt.int32, unique=1)
    body = b.sink(b.store(b.at(b.param(0, (1,), dt.int32), 0), element), name="k")
    graph = b.after(memory, b.call(body, memory, b.param(0, (4,), dt.int32), b.param(1, (1,), dt.int32), written=(0,)))
    for pages in (0, 1):
        x = {"b1": np.zeros(1, np.int32), "p0": np.arange(4, dtype=np.int32), "p1": np.array([pages], np.int32)}
        expected = [position - 6 if pages == 1 and 7 <= position < 11 else 0]
        assert uops.compile(graph, "llvm")(x).values[0].tolist() == expected


def test_a_reduce_of_a_vector_over_loops_of_which_one_bounds_another_has_loops_of_its_own_per_element() -> None:
    i = b.range_(3, 0)
    j = b.range_(b.add(i, 1), 1)
    p, q, memory = b.param(0, (2,), dt.int32), b.param(1, (4,), dt.int32), b.buffer(2, dt.int32, unique=1)
    x = b.load(b.at(q, j))
    total = UOp(Op.REDUCE, (b.stack(x, b.mul(x, 2)), i, j), ReduceArg(Op.ADD))
    call = b.call(b.sink(b.store(p, total), name="k"), memory, b.param(0, (4,), dt.int32), written=(0,))
    y = {"b1": np.zeros(2, np.int32), "p0": np.arange(4, dtype=np.int32)}
    graph = b.after(memory, call)
    assert uops.compile(graph, "llvm")(y).values[0].tolist() == uops.run(graph, y).values[0].tolist() == [4, 8]


@pytest.mark.parametrize("make", ["stack", "index by a constant vector"])
def test_a_pad_of_a_stack_chooses_no_element_outside(make: str) -> None:
    p, q, memory = b.param(0, (4,), dt.int32), b.param(1, (2,), dt.int32), b.buffer(4, dt.int32, unique=1)
    reversed_indices = b.stack(b.index(1), b.index(0))
    x = b.stack(b.load(b.at(q, 1)), b.load(b.at(q, 0))) if make == "stack" else b.load(UOp(Op.INDEX, (q, reversed_indices)))
    call = b.call(b.sink(b.store(p, b.pad(x, (1,), (4,))), name="k"), memory, b.param(0, (2,), dt.int32), written=(0,))
    graph = b.after(memory, call)
    y = {"b1": np.full(4, 9, np.int32), "p0": np.array([1, 2], np.int32)}
    assert uops.compile(graph, "llvm")(y).values[0].tolist() == uops.run(graph, y).values[0].tolist() == [0, 2, 1, 0]


def test_a_store_of_a_vector_whose_extent_gets_another_form_in_positions_is_one_loop() -> None:
    size = b.sub(b.variable("m", 1, 8), 1)
    p, q = (b.shrink(b.param(k, (8,), dt.int32), (0,), (size,)) for k in range(2))
    body = b.sink(b.store(p, b.add(q, 1)), name="k")
    x = {"p0": np.zeros(8, np.int32), "p1": np.arange(8, dtype=np.int32), "m": 5}
    expected = [1, 2, 3, 4, 0, 0, 0, 0]
    assert uops.compile(body, "llvm")(x).buffers["p0"].tolist() == uops.run(body, x).buffers["p0"].tolist() == expected


def test_a_special_whose_bound_gets_another_form_in_positions_is_one_special_R125() -> None:
    """FOUND 234: a gate had the Special with a simpler bound than the address had."""
    m = b.param(0, (1,), dt.int32)
    lane = UOp(Op.SPECIAL, (b.mod(b.cast(b.at(m, 0), dt.index), 3),), SpecialArg("gidx0"))
    body = b.sink(UOp(Op.ATOMICADD, (b.at(m, lane), b.at(m, lane))), name="k")
    lowered = replace_params_and_lower_unscheduled_kernel(body, {m: m})
    assert len(nodes_with_op(lowered, Op.SPECIAL)) == 1
