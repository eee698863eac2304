"""Graphs: functions, memory, order, races, traps, sets of outputs (R14, R27, R32, R47 to R55, R59, R61, R63, R64, R73)."""

import pytest

from uops.interp.exact import Bits, bits_of, run
from uops.spec.errors import SpecError, Trap, Unsupported
from uops.spec.ir import build as B
from uops.spec.ir.dtypes import bool_, float16, float32, index, int8, int32, uint8, uint16
from uops.spec.ir.node import UOp
from uops.spec.ir.ops import Op


def one(root, inputs=None, **options):
    (value,) = run(root, inputs or {}, **options).values
    return value


def numbers(root, inputs=None, **options):
    return list(one(root, inputs, **options).numbers)


@pytest.fixture
def x():
    return B.param(0, (3,), int32)


DATA = {"p0": [1, 2, 3]}


# Sources


def test_sources():
    assert numbers(B.const(-3, int8)) == [-3] and one(B.const(0.1, float16)).bits == (bits_of(float16, 0.1),)
    assert one(B.binary(b"\x00\xff")).bits == (0, 255)
    assert numbers(B.variable("n", 0, 5), {"n": 4}) == [4]
    assert run(B.buffer(2, int8, unique=901), {"b901": [5, -6]}).values[0].numbers == (5, -6)


def test_r73_an_n_tuple_buffer_is_one_logical_array():
    b = B.buffer(2, int8, device=("A", "B"), unique=902)
    assert one(b, {"b902": [1, 2, 3, 4]}).shape == (4,)


@pytest.mark.parametrize("n", [-1, 6])
def test_r48_a_variable_outside_its_bounds_traps(n):
    with pytest.raises(Trap, match="R48"):
        run(B.variable("n", 0, 5), {"n": n})


def test_a_missing_input_is_named():
    with pytest.raises(SpecError, match="input p0 is missing"):
        run(B.param(0, (3,), int32), {})


# Elementwise, reduce, markers


def test_values_between_nodes_are_the_canonical_bits():
    a = B.param(0, (), float32)
    answer = one(B.add(B.sin(a), 0.0), {"p0": 1.0}).elements[0]
    assert answer.is_exact and answer.best == one(B.sin(a), {"p0": 1.0}).elements[0].best


def test_an_output_holds_the_set_of_its_last_op_through_movement_and_where():
    a = B.param(0, (2,), float32)
    moved = B.reshape(B.flip(B.exp2(a), (True,)), (2, 1))
    chosen = B.where(B.const(True), moved, 0.0)
    for root in (moved, chosen, B.contiguous(moved), B.detach(moved), B.load(moved)):
        got = one(root, {"p0": [0.5, 1.0]})
        assert [e.value_count_nans_as_one for e in got.elements] == [1, 5]


def test_level_core_reaches_the_ops(x):
    p = B.param(0, (1,), int32)
    assert one(B.idiv(p, 0), {"p0": [3]}, level="core").elements[0].anything
    assert one(B.idiv(p, 0), {"p0": [3]}).elements[0].is_exact


def test_r14_where_takes_any_condition():
    p = B.param(0, (3,), float32)
    got = numbers(UOp(Op.WHERE, (p, B.const(1, int8), B.const(2, int8))), {"p0": [float("nan"), -0.0, 0.5]})
    assert got == [1, 2, 1]


def test_r25_unequal_operand_dtypes_are_ill_formed():
    with pytest.raises(SpecError, match="R25"):
        run(UOp(Op.ADD, (B.const(1, int8), B.const(1, int32))), {}, check=False)
    assert numbers(UOp(Op.SHL, (B.const(1, int8), B.const(3, uint16)))) == [8]


def test_r42_reduce_keeps_axes_at_size_one():
    m = B.param(0, (2, 3), int32)
    inputs = {"p0": [1, 2, 3, 4, 5, 6]}
    for axes, shape, expected in (
        ((0,), (1, 3), [5, 7, 9]),
        ((1,), (2, 1), [6, 15]),
        ((0, 1), (1, 1), [21]),
        ((), (2, 3), [1, 2, 3, 4, 5, 6]),
    ):
        got = one(B.reduce(m, Op.ADD, axes), inputs)
        assert got.shape == shape and list(got.numbers) == expected
    assert numbers(B.sum_and_drop_axis(m, 1), inputs) == [6, 15]
    assert numbers(B.reduce(m, Op.MAX, (1,)), inputs) == [3, 6] and numbers(B.reduce(m, Op.MUL, (0,)), inputs) == [4, 10, 18]


def test_r32_a_reduce_over_nothing_gives_the_identity():
    e = B.param(0, (2, 0), float32)
    assert numbers(B.reduce(e, Op.ADD, (1,)), {"p0": []}) == [0.0, 0.0]
    assert numbers(B.reduce(e, Op.MAX, (1,)), {"p0": []}) == [float("-inf")] * 2


def test_r32_a_sum_over_mul_allows_fused_products():
    a, b = B.param(0, (2, 1), float16), B.param(1, (2, 2), float16)
    inputs = {"p0": Bits((0x3C01, 0x3C01)), "p1": Bits((0x3C01, 0x3C00, 0xBC02, 0x3C00))}
    product = B.mul(a, b)
    fused = one(B.reduce(product, Op.ADD, (0,)), inputs).elements
    plain = one(B.reduce(B.contiguous(product), Op.ADD, (0,)), inputs).elements
    assert fused[0].best == plain[0].best and fused[0].value_count_nans_as_one > plain[0].value_count_nans_as_one
    assert fused[0].contains(bits_of(float16, 2.0**-20 - 2.0**-20)) and fused[0].contains(bits_of(float16, -(2.0**-20)))


def test_gemm_as_the_listing_writes_it():
    a, b = B.param(0, (2, 3), float32), B.param(1, (3, 2), float32)
    product = B.mul(B.reshape(a, (2, 3, 1)), B.reshape(b, (1, 3, 2)))
    got = one(B.sum_and_drop_axis(product, 1), {"p0": [1, 2, 3, 4, 5, 6], "p1": [1, 0, 0, 1, 1, 1]})
    assert got.shape == (2, 2) and got.numbers == (4.0, 5.0, 10.0, 11.0)


def test_prefix_sum_as_the_listing_writes_it():
    n = 4
    t = B.param(0, (n,), int32)
    padded = B.expand(B.reshape(B.pad_by(t, (n - 1, 0)), (1, 2 * n - 1)), (n + 1, 2 * n - 1))
    windows = B.shrink_to(B.reshape(padded, ((n + 1) * (2 * n - 1),)), 2 * n * n)
    rows = B.shrink_to(B.reshape(windows, (n, 2 * n)), n, n)
    assert numbers(B.sum_and_drop_axis(rows, -1), {"p0": [1, 2, 3, 4]}) == [1, 3, 6, 10]


def test_depth_is_not_limited():
    u = B.param(0, (), int8)
    for _ in range(20000):
        u = UOp(Op.ADD, (u, B.const(1, int8)))
    assert numbers(u, {"p0": 3}) == [(3 + 20000 + 128) % 256 - 128]


# Functions and calls


def test_r64_a_function_is_its_substituted_body(x):
    p, q = B.param(0, (3,), int32), B.param(1, (), int32)
    f = B.function(B.tuple_(B.add(p, q), B.mul(p, p)), x, B.const(10, int32))
    assert numbers(B.get(f, 0), DATA) == [11, 12, 13] and numbers(B.get(f, 1), DATA) == [1, 4, 9]
    assert [v.numbers for v in run(f, DATA).values] == [(11, 12, 13), (1, 4, 9)]


def test_r64_nested_bodies_own_their_params(x):
    p = B.param(0, (3,), int32)
    inner = B.function(B.mul(p, 10), B.add(p, 1))
    outer = B.function(B.add(B.get(inner, 0), p), x)
    assert numbers(B.get(outer, 0), DATA) == [21, 32, 43]


def test_r64_one_body_may_be_used_twice(x):
    body = B.tuple_(B.neg(B.param(0, (3,), int32)))
    first = B.get(B.function(body, x), 0)
    second = B.get(B.function(body, first), 0)
    assert numbers(second, DATA) == [1, 2, 3]


def test_r64_argument_shapes_and_dtypes_equal_the_params(x):
    for p in (B.param(0, (2,), int32), B.param(0, (3,), int8)):
        with pytest.raises(SpecError, match="R64"):
            run(B.function(B.tuple_(UOp(Op.NEG, (p,))), x), DATA, check=False)
    with pytest.raises(SpecError, match="R64"):
        run(B.function(B.tuple_(B.param(1, (3,), int32)), x), DATA, check=False)


def test_r48_a_function_binds_a_variable_by_slot():
    n = B.variable("n", 0, 5, slot=1)
    body = B.tuple_(B.shrink(B.param(0, (6,), int32), (0,), (n,)))
    data = B.param(0, (6,), int32)
    assert [v.numbers for v in run(B.function(body, data, B.index(2)), {"p0": list(range(6))}).values] == [(0, 1)]
    with pytest.raises(Trap, match="R48"):
        run(B.function(body, data, B.index(6)), {"p0": list(range(6))}, check=False)


def test_tuples():
    t = B.tuple_(B.const(1, int8), B.const(2.0))
    assert [v.numbers for v in run(t, {}).values] == [(1,), (2.0,)]
    assert numbers(B.get(t, 1)) == [2.0]


def test_r63_a_call_acts_through_its_arguments():
    b = B.buffer(3, int32, unique=910)
    target, source = B.param(0, (3,), int32), B.param(1, (3,), int32)
    body = B.sink(B.store(target, B.mul(source, 2)))
    result = run(B.after(b, B.call(body, b, B.param(0, (3,), int32))), DATA)
    assert result.values[0].numbers == (2, 4, 6) and result.buffers["b910"].numbers == (2, 4, 6)


def test_kernel_ops_are_refused():
    r = B.range_(3, 0)
    with pytest.raises(Unsupported, match="RANGE"):
        run(B.sink(r), {})


# Memory and order


def fresh(unique, n=3, dtype=int32):
    return B.buffer(n, dtype, unique=unique)


def test_store_then_after(x):
    b = fresh(920)
    result = run(B.assign(b, B.add(x, 1)), DATA)
    assert result.values[0].numbers == (2, 3, 4) and result.buffers["b920"].numbers == (2, 3, 4)


def test_r54_the_value_is_read_before_the_first_write():
    b = fresh(921)
    assert numbers(B.assign(b, B.flip(b, (True,))), {"b921": [1, 2, 3]}) == [3, 2, 1]


def test_r61_an_unwritten_element_traps_and_is_none_in_the_result():
    b = fresh(922)
    with pytest.raises(Trap, match="R61"):
        run(b, {})
    part = B.store(B.shrink(b, (1,), (1,)), B.reshape(B.const(7, int32), (1,)))
    assert run(B.sink(part), {}).buffers["b922"].numbers == (None, 7, None)
    with pytest.raises(Trap, match="R61"):
        run(B.after(b, part), {})
    assert numbers(B.shrink(B.after(b, part), (1,), (1,))) == [7]


@pytest.mark.parametrize(
    ("view", "expected"),
    [
        (lambda b: B.flip(b, (True,)), (4, 3, 2, 1)),
        (lambda b: B.reshape(B.permute(B.reshape(b, (2, 2)), (1, 0)), (4,)), (1, 3, 2, 4)),
        (lambda b: B.at(b, B.stack(*map(B.index, (3, 1, 0, 2)))), (3, 2, 4, 1)),
        (lambda b: B.slice_(b, 0, 4), (1, 2, 3, 4)),
    ],
)
def test_r51_a_store_through_an_injective_view(view, expected):
    b = fresh(923, 4)
    values = B.stack(*(B.const(k, int32) for k in (1, 2, 3, 4)))
    assert run(B.sink(B.store(view(b), values)), {}).buffers["b923"].numbers == expected


def test_r46_a_store_through_a_bitcast_writes_bytes():
    b = fresh(924, 4, uint8)
    values = B.stack(B.const(0x1234, uint16), B.const(0xABCD, uint16))
    assert run(B.sink(B.store(B.bitcast(b, uint16), values)), {}).buffers["b924"].bits == (0x34, 0x12, 0xCD, 0xAB)


@pytest.mark.parametrize(
    "view", [lambda b: B.expand(B.reshape(b, (1, 3)), (2, 3)), lambda b: B.pad(b, (0,), (4,)), lambda b: B.add(b, 0)]
)
def test_r51_a_store_to_a_value_is_ill_formed(view):
    b = fresh(925)
    target = view(b)
    zero = B.expand(B.reshape(B.const(0, int32), (1,) * len(target.shape)), target.shape)
    with pytest.raises(SpecError, match="R51"):
        run(B.sink(B.store(target, zero)), {"b925": [1, 2, 3]}, check=False)


def test_store_needs_equal_shapes_and_dtypes(x):
    for value in (B.const(1, int32), B.cast(x, int8)):
        with pytest.raises(SpecError, match="Store of"):
            run(B.sink(B.store(fresh(926), value)), DATA, check=False)


def test_r52_a_gated_store_writes_where_the_gate_holds(x):
    b = fresh(927)
    gate = B.stack(B.const(True), B.const(False), B.const(True))
    assert run(B.sink(B.store(b, x, gate)), DATA).buffers["b927"].numbers == (1, None, 3)
    wide = B.at(b, B.stack(B.index(0), B.index(9), B.index(2)))
    assert run(B.sink(B.store(wide, x, gate)), DATA).buffers["b927"].numbers == (1, None, 3)
    with pytest.raises(Trap, match="R45"):
        run(B.sink(B.store(wide, x)), DATA)
    assert run(B.sink(B.store(b, x, B.const(False))), DATA).buffers["b927"].numbers == (None,) * 3


def test_r52_load_with_alt_and_gate_of_a_value(x):
    alt = B.mul(x, 10)
    gate = B.lt(x, 2)
    assert numbers(B.load(B.add(x, 0), alt, gate), DATA) == [1, 20, 30]
    assert numbers(B.load(x, alt, B.const(False)), DATA) == [10, 20, 30]


def test_r53_copy_to_devices_keeps_the_value(x):
    assert numbers(B.copy(B.copy(x, "OTHER"), ("A", "B", "C")), DATA) == [1, 2, 3]


def test_r27_a_value_is_read_once(x):
    """y reads b before the store, through its use in the stored value; its second use sees the same bits."""
    b = fresh(928)
    y = B.add(b, 1)
    written = B.after(b, B.store(b, y))
    assert numbers(B.sub(written, y), {"b928": [1, 2, 3]}) == [0, 0, 0]
    assert numbers(B.sub(written, b), {"b928": [1, 2, 3]}) == [1, 1, 1]


def test_r59_after_orders_through_a_dep_without_effect(x):
    b = fresh(929)
    first = B.store(b, x)
    second = B.store(B.after(b, B.group(B.group(first))), B.mul(x, 5))
    assert numbers(B.after(b, second), DATA) == [5, 10, 15]


@pytest.mark.parametrize("case", ["write-write", "equal values", "read-write", "write-read"])
def test_r55_unordered_accesses_trap(case, x):
    b = fresh(930)
    first, other = B.store(b, x), B.store(b, B.mul(x, 1))
    read = B.add(b, 1)
    root = {
        "write-write": B.sink(first, B.store(b, B.neg(x))),
        "equal values": B.sink(first, other),
        "read-write": B.sink(read, first),
        "write-read": B.sink(B.after(b, first), read),
    }[case]
    with pytest.raises(Trap, match="R55"):
        run(root, {**DATA, "b930": [0, 0, 0]})


def test_r55_disjoint_or_ordered_accesses_do_not_race(x):
    b = fresh(931)
    low, high = B.shrink(b, (0,), (1,)), B.shrink(b, (1,), (2,))
    root = B.sink(B.store(low, B.shrink(x, (0,), (1,))), B.store(high, B.shrink(x, (1,), (2,))))
    assert run(root, DATA).buffers["b931"].numbers == (1, 2, 3)
    assert numbers(B.assign(B.assign(b, x), B.add(B.assign(b, x), 1)), DATA) == [2, 3, 4]


def test_r164_of_one_store_the_last_value_of_an_element_stays():
    twice = B.at(fresh(932), B.stack(*map(B.index, (1, 2, 1, 0, 2))))
    value = B.stack(*(B.const(k, int32) for k in range(5)))
    assert run(B.sink(B.store(twice, value)), {}).buffers["b932"].numbers == (3, 2, 4)
    gate = B.stack(*map(B.const, (True, True, False, True, False)))
    assert run(B.sink(B.store(twice, value, gate)), {}).buffers["b932"].numbers == (3, 0, 1)
    again = B.store(twice, B.neg(value))
    with pytest.raises(Trap, match="R55"):  # two Stores are still unordered
        run(B.sink(B.store(twice, value), again), {})


def test_stored_answers_keep_their_set():
    b = fresh(933, 1, float32)
    v = B.param(0, (1,), float32)
    got = run(B.assign(b, B.sin(v)), {"p0": [1.0]})
    assert got.values[0].elements[0].value_count_nans_as_one == 5 and got.buffers["b933"].elements[0].value_count_nans_as_one == 5


def test_results_of_sink_group_and_store(x):
    b = fresh(934)
    s = B.store(b, x)
    assert run(s, DATA).values == () and run(B.sink(s), DATA).values == ()
    both = run(B.group(B.after(b, s), s, B.neg(x)), DATA).values
    assert [v.numbers for v in both] == [(1, 2, 3), (-1, -2, -3)]


def test_a_store_to_a_free_param_is_reported(x):
    result = run(B.after(x, B.store(x, B.flip(x, (True,)))), DATA)
    assert result.values[0].numbers == (3, 2, 1) and result.buffers["p0"].numbers == (3, 2, 1)


def test_one_name_has_one_dtype_and_size():
    with pytest.raises(SpecError, match="p0"):
        run(B.tuple_(B.param(0, (2,), int32), B.param(0, (3,), int32)), {"p0": [1, 2]}, check=False)


def test_contains_of_a_result():
    got = one(B.lt(B.param(0, (2,), int8), 3), {"p0": [1, 5]})
    assert got.dtype is bool_ and got.contains([1, 1]) == [True, False]


def test_index_values_do_not_wrap():
    n = B.variable("n", 0, 1 << 62)
    assert n.dtype is index
    assert numbers(B.mul(B.mul(n, n), n), {"n": 1 << 62}) == [1 << 186]


@pytest.mark.parametrize("tail", [[0x7F800000], [0x7F000000] * 3], ids=["infinity", "overflow"])
def test_a_product_that_vanishes_may_meet_an_infinity(tail: list[int]) -> None:
    words = [5, 0x3F000000, 0x3F000000, 0x3F000000, *tail]  # 5 units halved three times is 2, 1 and 0, though 0.625 exactly
    product = run(B.reduce(B.param(0, (len(words),), float32), Op.MUL, [0]), {"p0": Bits(words)}).values[0]
    assert product.contains([0x7FC00000]) == [True]


def test_a_product_that_cannot_vanish_is_no_nan() -> None:
    words = [0x00800000, 0x3F000000, 0x7F800000]
    product = run(B.reduce(B.param(0, (3,), float32), Op.MUL, [0]), {"p0": Bits(words)}).values[0]
    assert (product.contains([0x7FC00000]), product.contains([0x7F800000])) == ([False], [True])


def test_an_index_out_of_bounds_traps_beside_an_empty_axis() -> None:
    x = B.contiguous(B.param(0, (3, 0), int32))
    root = B.add(UOp(Op.INDEX, (x, B.variable("i", 0, 9))), 1)
    assert run(root, {"p0": [], "i": 2}).values[0].shape == (0,)
    with pytest.raises(Trap, match="R45"):
        run(root, {"p0": [], "i": 5})
