"""Which loops become the launch, and what the text says of it; no device is needed."""

from __future__ import annotations

import math

import pytest
from kernel_claims import GOLDEN, linear, register, row_sum
from workgroup_kernels import local, nest, reversal, special

from uops.backends.cstyle.language import MAX_LANES
from uops.backends.cstyle.launch import parse_launch_comment
from uops.backends.opencl.platforms import PLAIN
from uops.backends.opencl.render import OPENCL, OPS, describe_language, render
from uops.compiler.target import PLAIN_OPS
from uops.spec.errors import CompileError, Unsupported
from uops.spec.ir import args as A
from uops.spec.ir import build as B
from uops.spec.ir import dtypes as dt
from uops.spec.ir.axes import AxisType
from uops.spec.ir.node import UOp
from uops.spec.ir.ops import Op


def variables(count: int) -> list[UOp]:
    """Sizes that the caller gives, in slots 1 and up."""
    return [UOp(Op.PARAM, (B.SCALAR,), A.ParamArg(1 + k, dt.index, name=f"n{k}", bounds=(0, 2))) for k in range(count)]


def by_variables(count: int, *axes: tuple[int, AxisType]) -> UOp:
    """A Store in GLOBAL loops of `count` variable sizes and of some known ones."""
    ranges = [UOp(Op.RANGE, (size,), A.RangeArg(k, AxisType.GLOBAL)) for k, size in enumerate(variables(count))]
    ranges += [B.range_(n, count + k, kind) for k, (n, kind) in enumerate(axes)]
    where: UOp = B.index(0)
    for r in ranges:
        where = B.add(B.mul(where, B.index(2)), r)
    root = B.store(B.at(B.param(0, (4096,), dt.int32), where), B.const(1))
    for r in reversed(ranges):
        root = B.end(root, r)
    return linear(root)


@pytest.mark.parametrize("name", GOLDEN)
def test_the_rendered_text_is_the_golden_one(kernels, golden, name: str) -> None:
    golden(f"opencl-{name}.cl", render(GOLDEN[name](kernels)))


def test_the_rendered_text_of_atomic_sums_is_the_golden_one(golden) -> None:
    """Whether one of them is lost is a matter of chance, so that the text says that none can be."""
    g, d = B.range_(8, 0, AxisType.GLOBAL), dt.float32
    add = UOp(Op.ATOMICADD, (B.at(B.param(0, (3,), d), B.mod(g, B.index(3))), B.load(B.at(B.param(1, (8,), d), g))))
    golden("opencl-atomic-sums.cl", render(linear(B.end(add, g))))


def test_the_renderer_has_every_op_that_selection_leaves_and_those_of_workgroups() -> None:
    assert PLAIN_OPS | {Op.SPECIAL, Op.BARRIER, Op.ATOMICADD, Op.IF, Op.ENDIF} <= OPS
    assert OPENCL.workgroups is not None


@pytest.mark.parametrize("u", [UOp(Op.WMMA), UOp(Op.INS, (), A.InsArg("nop", dt.void))], ids=lambda u: u.op.name)
def test_what_this_target_lacks_is_refused_by_name(u: UOp) -> None:
    with pytest.raises(Unsupported, match=u.op.name):
        render(UOp(Op.LINEAR, (u,)))


def test_a_kernel_of_loops_is_one_work_item() -> None:
    shape = parse_launch_comment(render(row_sum(5, 7)))
    assert (shape.groups, shape.lanes, shape.arguments) == ((), (), ("buffer", "buffer"))
    assert shape.evaluate_global_local_sizes_unless_empty([0, 0]) == ((1,), (1,))


def test_global_and_local_ranges_are_the_launch() -> None:
    shape = parse_launch_comment(
        text := render(nest((6, AxisType.GLOBAL), (4, AxisType.GLOBAL), (8, AxisType.LOCAL), (3, AxisType.LOOP)))
    )
    assert (shape.groups, shape.lanes) == ((6, 4), (8,))
    assert shape.evaluate_global_local_sizes_unless_empty([0]) == ((48, 4), (8, 1))
    assert text.count("for (") == 1
    assert text.count("get_group_id") == 2
    assert text.count("get_local_id") == 1


def test_a_loop_around_keeps_what_is_inside_a_loop() -> None:
    """Iterations of LOOP are ordered, and a launch is not."""
    shape = parse_launch_comment(text := render(nest((3, AxisType.LOOP), (6, AxisType.GLOBAL))))
    assert (shape.groups, text.count("for (")) == ((), 2)


def test_more_ranges_than_dimensions_share_the_last_one() -> None:
    text = render(nest(*[(k, AxisType.GLOBAL) for k in (2, 3, 4, 5, 6)]))
    assert parse_launch_comment(text).groups == (2, 3, 120)
    assert "for (" not in text
    assert "(get_group_id(2) % 6)" in text and "((get_group_id(2) / 6) % 5)" in text and "((get_group_id(2) / 30) % 4)" in text
    lanes = render(nest(*[(2, AxisType.LOCAL)] * 5))
    assert parse_launch_comment(lanes).lanes == (2, 2, 8) and "for (" not in lanes


@pytest.mark.parametrize("sizes", [(4, 0, 6), (4, -1, 6), (4, -1, -6)])
def test_empty_ranges_that_share_a_dimension_are_an_empty_launch_without_a_division_by_0_R57(sizes: tuple[int, ...]) -> None:
    text = render(nest(*[(k, AxisType.GLOBAL) for k in (2, 3, *sizes)]))
    shape = parse_launch_comment(text)
    assert shape.groups == (2, 3, 0) and shape.evaluate_global_local_sizes_unless_empty([0]) is None
    last = max(1, sizes[-1])
    assert f"(get_group_id(2) % {last})" in text and "/ 0)" not in text and "/ -" not in text


def test_sizes_of_variables_have_dimensions_of_their_own() -> None:
    text = render(by_variables(2, (5, AxisType.GLOBAL), (6, AxisType.GLOBAL)))
    shape = parse_launch_comment(text)
    assert shape.groups == ("1", "2", 30) and "for (" not in text
    assert shape.evaluate_global_local_sizes_unless_empty([0, 3, 4]) == ((3, 4, 30), (1, 1, 1))
    more = render(by_variables(4))
    assert parse_launch_comment(more).groups == ("1", "2", "3") and more.count("for (") == 1


def test_more_lanes_than_a_group_has_stay_loops() -> None:
    text = render(nest((MAX_LANES, AxisType.LOCAL), (2, AxisType.LOCAL)))
    assert parse_launch_comment(text).lanes == (MAX_LANES,)
    assert text.count("for (") == 1


def test_two_nests_in_a_row_stay_loops() -> None:
    """The second may read what the first wrote, in another workgroup."""
    out = B.param(0, (4,), dt.int32)
    first, second = B.range_(4, 0, AxisType.GLOBAL), B.range_(4, 1, AxisType.GLOBAL)
    done = B.end(B.store(B.at(out, first), B.const(1)), first)
    again = B.at(B.after(out, done), second)
    text = render(linear(B.end(B.store(again, B.add(B.load(again), B.const(1))), second)))
    assert (parse_launch_comment(text).groups, text.count("for (")) == ((), 2)


def test_registers_before_the_launch_are_every_work_item_s_own() -> None:
    """A sum that does not depend on the lanes stands before them."""
    x, out, total = B.param(1, (4,), dt.int32), B.param(0, (8,), dt.int32), register(1, dt.int32, 5)
    r, g, i = B.range_(4, 0, AxisType.REDUCE), B.range_(2, 1, AxisType.GLOBAL), B.range_(4, 2, AxisType.LOCAL)
    zero = B.store(B.at(total, 0), B.const(0))
    place = B.at(B.after(total, zero, r), 0)
    added = B.end(B.store(place, B.add(B.load(place), B.load(B.at(x, r)))), r)
    value = B.load(B.at(B.after(total, added), 0))
    root = B.end(B.end(B.store(B.at(out, B.add(B.mul(g, B.index(4)), i)), value), i), g)
    text = render(linear(root))
    assert (parse_launch_comment(text).groups, parse_launch_comment(text).lanes, text.count("for (")) == ((2,), (4,), 1)


def test_what_is_read_before_the_launch_and_written_in_it_keeps_it_a_loop() -> None:
    """Else a work-item could read what another one has written already."""
    out, g = B.param(0, (8,), dt.int32), B.range_(8, 1, AxisType.GLOBAL)
    end = B.end(B.store(place := B.at(out, g), value := B.load(first := B.at(out, 0))), g)
    text = render(UOp(Op.LINEAR, (out, first, value, g, place, end.src[0], end)))
    assert (parse_launch_comment(text).groups, text.count("for (")) == ((), 1)


@pytest.mark.parametrize("in_a_loop", [False, True])
def test_what_is_read_between_two_ranges_and_written_in_the_inner_one_keeps_that_a_loop(in_a_loop: bool) -> None:
    """Else each lane repeats the Load, and reads what another lane has written already."""
    out, g, i, r = B.param(0, (8,), dt.int32), B.range_(2, 0, AxisType.GLOBAL), B.range_(4, 1, AxisType.LOCAL), B.range_(4, 2)
    total, row = register(1, dt.int32, 5), B.mul(g, B.index(4))
    read = B.load(B.at(out, B.add(row, r) if in_a_loop else row))
    kept = B.store(B.at(total, 0), read)
    value = B.load(B.at(B.after(total, B.end(kept, r) if in_a_loop else kept), 0))
    before = linear(value).instructions
    root = B.end(B.end(B.store(B.at(out, B.add(row, i)), value), i), g)
    text = render(UOp(Op.LINEAR, (*before, *(u for u in linear(root).instructions if u not in before))))
    shape = parse_launch_comment(text)
    assert (shape.groups, shape.lanes, text.count("for (")) == ((2,), (), 1 + in_a_loop)


def test_what_is_read_in_the_innermost_range_and_written_there_leaves_it_in_the_launch() -> None:
    out, g, i = B.param(0, (8,), dt.int32), B.range_(2, 0, AxisType.GLOBAL), B.range_(4, 1, AxisType.LOCAL)
    place = B.at(out, B.add(B.mul(g, B.index(4)), i))
    shape = parse_launch_comment(render(linear(B.end(B.end(B.store(place, B.add(B.load(place), B.const(1))), i), g))))
    assert (shape.groups, shape.lanes) == ((2,), (4,))


def test_an_effect_outside_keeps_a_range_a_loop() -> None:
    out = B.param(0, (8,), dt.int32)
    i = B.range_(4, 0, AxisType.GLOBAL)
    inside = B.end(B.store(B.at(out, i), B.const(1)), i)
    text = render(linear(UOp(Op.GROUP, (inside, B.store(B.at(out, 7), B.const(2))))))
    assert parse_launch_comment(text).groups == ()


@pytest.mark.parametrize(("n", "sizes"), [(5, ((5,), (1,))), (1, ((1,), (1,))), (0, None), (-3, None)])
def test_a_variable_extent_is_read_from_the_scalars_R48_R57(n: int, sizes: object) -> None:
    v = UOp(Op.PARAM, (B.SCALAR,), A.ParamArg(1, dt.index, name="n", bounds=(-9, 9)))
    i = UOp(Op.RANGE, (v,), A.RangeArg(0, AxisType.GLOBAL))
    shape = parse_launch_comment(render(linear(B.end(B.store(B.at(B.param(0, (9,), dt.int32), i), B.const(1)), i))))
    assert shape.groups == ("1",)
    assert shape.evaluate_global_local_sizes_unless_empty([0, n]) == sizes


def test_specials_number_groups_and_lanes_by_their_names() -> None:
    out = B.param(0, (64,), dt.int32)
    g, l0, l1 = special("gidx0", B.index(4)), special("lidx0", B.index(2)), special("lidx1", B.index(8))
    where = B.add(B.mul(g, B.index(16)), B.add(B.mul(l0, B.index(8)), l1))
    shape = parse_launch_comment(text := render(linear(B.store(B.at(out, where), B.const(1)))))
    assert (shape.groups, shape.lanes) == ((4,), (2, 8))
    assert "get_group_id(0)" in text
    assert "get_local_id(1)" in text


def test_a_special_of_an_unknown_extent_is_refused() -> None:
    bound = B.load(B.at(B.param(1, (1,), dt.int32), 0))
    with pytest.raises(Unsupported, match="SPECIAL gidx0"):
        render(linear(B.store(B.at(B.param(0, (64,), dt.int32), special("gidx0", bound)), B.const(1))))


@pytest.mark.parametrize("bounds", [(2, 2, 2, 2), (64, 64)])
def test_a_launch_that_opencl_does_not_have_is_refused(bounds: tuple[int, ...]) -> None:
    where: UOp = B.index(0)
    for k, n in enumerate(bounds):
        where = B.add(B.mul(where, B.index(n)), special(f"lidx{k}", B.index(n)))
    with pytest.raises(Unsupported, match=r"SPECIAL in a launch"):
        render(linear(B.store(B.at(B.param(0, (4096,), dt.int32), where), B.const(1))))


def test_local_memory_and_barriers_have_a_text_of_their_own(golden) -> None:
    golden("opencl-workgroup-reversal.cl", text := render(reversal(4, 8)))
    assert "__local i32" in text
    assert "barrier(" in text


@pytest.mark.parametrize("axes", [3, 4])
def test_a_group_is_one_iteration_of_all_global_ranges_if_it_has_local_memory_R61(axes: int) -> None:
    """Else a fast lane would write what a slow one still reads, an iteration behind."""
    tile, i = local(8, dt.int32, 79), B.range_(8, 9, AxisType.LOCAL)
    ranges = [UOp(Op.RANGE, (size,), A.RangeArg(k, AxisType.GLOBAL)) for k, size in enumerate(variables(axes))]
    where: UOp = B.index(0)
    for r in ranges:
        where = B.add(B.mul(where, B.index(2)), r)
    at = B.add(B.mul(where, B.index(8)), i)
    put = B.store(B.at(tile, i), UOp(Op.CAST, (at,), A.CastArg(dt.int32)))
    taken = B.load(B.at(B.after(tile, UOp(Op.BARRIER, (put,))), B.sub(B.index(7), i)))
    root = B.end(B.store(B.at(B.param(0, (128,), dt.int32), at), taken), i)
    for r in reversed(ranges):
        root = B.end(root, r)
    if axes == 3:
        assert parse_launch_comment(render(linear(root))).lanes == (8,)
    else:
        with pytest.raises(CompileError, match="R60"):
            render(linear(root))


def test_a_barrier_in_a_loop_over_lanes_is_refused_R60() -> None:
    with pytest.raises(CompileError, match="R60"):
        render(reversal(4, 2 * MAX_LANES))


def test_a_sum_of_several_work_items_is_atomic_R56() -> None:
    i, out, x = B.range_(9, 0, AxisType.GLOBAL), B.param(0, (3,), dt.float32), B.param(1, (9,), dt.float32)
    add = UOp(Op.ATOMICADD, (B.at(out, B.mod(i, B.index(3))), B.load(B.at(x, i))))
    assert "atomic_cmpxchg" in render(linear(B.end(add, i)))
    alone = B.range_(9, 0)
    one = UOp(Op.ATOMICADD, (B.at(out, B.mod(alone, B.index(3))), B.load(B.at(x, alone))))
    assert "atomic" not in render(linear(B.end(one, alone)))


def test_an_atomic_sum_of_bytes_exchanges_the_word_around_them() -> None:
    i, out = B.range_(9, 0, AxisType.GLOBAL), B.param(0, (3,), dt.int8)
    add = UOp(Op.ATOMICADD, (B.at(out, B.mod(i, B.index(3))), B.const(1, dt.int8)))
    text = render(linear(B.end(add, i)))
    assert "atomic_cmpxchg" in text and "& 3ul" in text


def test_memory_of_a_workgroup_has_no_initializer_and_a_register_has() -> None:
    """OpenCL C has none for local memory."""
    reg, tile = register(4, dt.int32, 3), local(4, dt.int32, 4)
    out = B.param(0, (2,), dt.int32)
    text = render(linear(UOp(Op.GROUP, tuple(B.store(B.at(out, k), B.load(B.at(m, 0))) for k, m in enumerate((reg, tile))))))
    lines = [line for line in text.splitlines() if "[4]" in line]
    assert sorted("{0}" in line for line in lines) == [False, True]
    assert math.prod(parse_launch_comment(text).lanes) == 1


#: The language of a device of which nothing particular is known.
PLAIN_LANGUAGE = describe_language(PLAIN)


def copy_of_neighbours(step: int, count: int, d: dt.DType = dt.float32) -> UOp:
    """p0[step * g + k] = p1[step * g + k], for k < count together."""
    g, x, out = B.range_(8, 0, AxisType.GLOBAL), B.param(1, (64,), d), B.param(0, (64,), d)
    first = B.mul(g, B.index(step))
    where = B.add(B.stack(*[first] * count), B.stack(*map(B.index, range(count))))
    return linear(B.end(B.store(B.at(out, where), B.load(B.at(x, where))), g))


@pytest.mark.parametrize("count", [2, 4, 8])
def test_neighbours_are_loaded_and_stored_as_a_vector(count: int) -> None:
    """Their first element has the alignment of an element alone."""
    text = render(copy_of_neighbours(3, count), PLAIN_LANGUAGE)
    assert text.count(f"vload{count}(0, (__global float *)&p1[") == 1
    assert text.count(f"vstore{count}((float{count})(") == 1
    assert "vload" not in render(copy_of_neighbours(3, count), OPENCL)


def test_elements_that_are_no_neighbours_or_of_no_vector_are_accessed_one_by_one() -> None:
    assert "vload" not in render(copy_of_neighbours(3, 3), PLAIN_LANGUAGE)
    assert "vload" not in render(copy_of_neighbours(4, 4, dt.bool_), PLAIN_LANGUAGE)


def test_a_gate_keeps_a_vector_from_its_address_R52() -> None:
    g, x, out = B.range_(8, 0, AxisType.GLOBAL), B.param(1, (16,), dt.int16), B.param(0, (64,), dt.int16)
    where = B.add(B.stack(*[B.mul(g, B.index(4))] * 4), B.stack(*map(B.index, range(4))))
    gate, others = B.lt(g, B.index(4)), B.stack(*[B.const(k, dt.int16) for k in range(4)])
    text = render(linear(B.end(B.store(B.at(out, where), B.load(B.at(x, where), others, gate), gate), g)), PLAIN_LANGUAGE)
    assert "? vload4(0, (__global short *)&p1[" in text and ": (short4)(0, 1, 2, 3);" in text
    assert any(line.strip().startswith("if (") and "vstore4(" in line for line in text.splitlines())


def test_the_text_for_any_device_is_the_golden_one(golden) -> None:
    golden("opencl-plain-neighbours.cl", render(copy_of_neighbours(4, 4), PLAIN_LANGUAGE))


def test_a_launch_of_one_dimension_states_its_lanes_and_the_innermost_is_the_fastest() -> None:
    """Some devices compile for smaller groups than a launch may have, if the text does not say its size."""
    text = render(nest((6, AxisType.GLOBAL), (4, AxisType.LOCAL), (8, AxisType.LOCAL)), PLAIN_LANGUAGE)
    assert parse_launch_comment(text).lanes == (4, 8)
    assert "__attribute__((reqd_work_group_size(32, 1, 1)))" in text
    assert "= ((u32)get_local_id(0) % 8);" in text and "= ((u32)get_local_id(0) / (8));" in text


def test_lanes_beyond_those_of_the_device_stay_loops() -> None:
    small = describe_language(PLAIN, max_lanes=64)
    text = render(nest((64, AxisType.LOCAL), (2, AxisType.LOCAL)), small)
    assert parse_launch_comment(text).lanes == (64,) and text.count("for (") == 1
    with pytest.raises(CompileError, match="R60"):
        render(reversal(4, 128), small)


def test_what_a_device_does_not_round_correctly_is_computed_in_float64() -> None:
    by_float64 = describe_language(PLAIN, frozenset({Op.DIV, Op.RECIP, Op.SQRT, Op.MULACC, Op.CAST}))

    def text(d: dt.DType) -> str:
        i = B.range_(4, 0)
        x, y = (B.load(B.at(B.param(k, (4,), d), i)) for k in (1, 2))
        value = B.mulacc(B.div(x, y), B.build_alu_with_promotion(Op.SQRT, x), B.build_alu_with_promotion(Op.RECIP, y))
        return render(linear(B.end(B.store(B.at(B.param(0, (4,), d), i), value), i)), by_float64)

    single, double = text(dt.float32), text(dt.float64)
    assert all(words in single for words in ("(f32)((f64)v", "(f32)sqrt((f64)v", "(f32)(1.0 / (f64)v", "= fma_f32(v"))
    assert "f32" not in double.partition("__kernel")[2] and "= fma(v" in double


@pytest.mark.parametrize("d", [dt.int64, dt.uint64, dt.int32], ids=str)
def test_a_64_bit_integer_becomes_float32_without_a_second_rounding(d: dt.DType) -> None:
    i = B.range_(4, 0)
    value = B.cast(B.load(B.at(B.param(1, (4,), d), i)), dt.float32)
    kernel = linear(B.end(B.store(B.at(B.param(0, (4,), dt.float32), i), value), i))
    assert ("from_wide_" in render(kernel, describe_language(PLAIN, frozenset({Op.CAST})))) == (d is not dt.int32)
    assert "from_wide_" not in render(kernel, PLAIN_LANGUAGE)
