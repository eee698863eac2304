"""`legalize` leaves core ops only, keeps the type, and gives graphs that are well-formed."""

import pytest
from all_examples import EXAMPLES, GOOD
from bestiary_examples import BOTH, CPU, GATED, I0, TRUE, B, _shards, _sink, _var, at, lanes, load, memory, n, r, red, store
from claim_examples import PAIR, b8, c, f32, i, i32, sharded, u8, v

from uops.spec.bestiary.legalize import LEGALIZE, legalize
from uops.spec.errors import SpecError
from uops.spec.ir import args as A
from uops.spec.ir import build as b
from uops.spec.ir import dtypes as dt
from uops.spec.ir.node import UOp, toposort
from uops.spec.ir.ops import Family, Op
from uops.spec.rows.rows import ROWS
from uops.spec.verify.verifier import find_broken_claims, verify

BESTIARY = [op for op, row in ROWS.items() if row.family is Family.BESTIARY]
ABSORBED = (Op.UNIQUE, Op.LUNIQUE, Op.DEVICE)
#: R113, R115: what a node becomes may have another type: a Program's stages are void as it is, an If is a Group, and so on.
ROOTS = [op for op in BESTIARY if op not in ABSORBED]


def test_every_bestiary_op_legalizes():
    assert set(LEGALIZE) == set(BESTIARY)
    assert all(ROWS[op].decomposition is LEGALIZE[op] for op in BESTIARY)


@pytest.mark.parametrize("op", ROOTS, ids=lambda o: o.name)
def test_well_formed_node_becomes_core_and_keeps_its_type(op):
    u = GOOD[op]
    low = legalize(u)
    verify(low)
    assert {x.op for x in toposort(low)}.isdisjoint(LEGALIZE)
    assert (low.dtype, low.shape, low.axis) == (u.dtype, u.shape, u.axis)


@pytest.mark.parametrize("op", ABSORBED, ids=lambda o: o.name)
def test_identities_mean_nothing_alone(op):
    with pytest.raises(SpecError, match="no meaning"):
        legalize(GOOD[op])


def _bestiary_graphs():
    return [id for id, e in EXAMPLES.items() if e.dialect is None and any(x.op in LEGALIZE for x in toposort(e.accepted))]


@pytest.mark.parametrize("id", [x for x in _bestiary_graphs() if EXAMPLES[x].accepted.op not in ABSORBED])
def test_accepted_graphs_stay_well_formed(id):
    low = legalize(EXAMPLES[id].accepted)
    assert [str(x) for x in find_broken_claims(low)] == []
    assert {x.op for x in toposort(low)}.isdisjoint(LEGALIZE)


def test_core_graphs_stay_as_they_are():
    for op, u in GOOD.items():
        if not any(x.op in LEGALIZE for x in toposort(u)):
            assert legalize(u) is u, op


# One law per form, as text: before -> after.


def _ops(u: UOp) -> list[Op]:
    return [x.op for x in toposort(u) if x.op not in (Op.CONST, Op.STACK)]


def test_gate_moves_onto_the_load_and_a_missing_alt_is_zero():
    """R104."""
    low = legalize(load(B, GATED))
    assert low is b.load(b.at(b.buffer(4, f32, unique=1), b.range_(4, 0)), c(0.0), TRUE)


def test_store_is_ended_by_its_ranges():
    """R105."""
    m, loop = b.buffer(4, f32, unique=1), b.range_(4, 0)
    assert legalize(store(I0, c(1.0), r())) is b.end(b.store(b.at(m, loop), c(1.0)), loop)


def test_range_waits_for_its_dependencies():
    outer = b.range_(4, 0)
    assert legalize(r(i(3), 1, r())).src == (b.after(i(3), outer),)


def test_reduce_of_a_vector_folds_lanes():
    """R105."""
    vector = n(Op.VECTORIZE, c(1.0), c(2.0))
    low = legalize(red(Op.B_REDUCE, vector, r()))
    assert low.shape == ()
    assert [x.arg for x in toposort(low) if x.op is Op.REDUCE] == [A.ReduceArg(Op.ADD, (0,)), A.ReduceArg(Op.ADD)]


@pytest.mark.parametrize(("dtype", "reverse"), [(i32, Op.XOR), (u8, Op.XOR), (dt.index, Op.XOR), (b8, Op.NOT), (f32, Op.NEG)])
def test_min_is_max_in_reversed_order(dtype, reverse):
    """R102: no integer is negated."""
    t = v((3,), dtype)
    assert _ops(legalize(red(Op.REDUCE_AXIS, t, by=Op.MIN, axes=(0,)))).count(reverse) == 2
    low = legalize(n(Op.MIN, t, v((3,), dtype, k=1)))
    assert [_ops(low).count(o) for o in (reverse, Op.MAX)] == [3, 1]


def test_pointer_index_counts_bytes():
    """R103."""
    low = legalize(n(Op.POINTER_INDEX, B, i(8)))
    assert low.min_max == low.src[0].min_max
    assert low.src[1].min_max == (2, 2)


def test_pointer_inside_of_an_element_is_out_of_bounds():
    """R122: an offset that is no multiple by its form is tested."""
    for offset, tested in ((b.mul(i(4), _var), False), (_var, True), (b.mul(i(2), _var), True)):
        low = legalize(n(Op.POINTER_INDEX, B, offset))
        assert (low.src[1].op is Op.WHERE) is tested
    assert low.src[1].src[2] is i(-1)


@pytest.mark.parametrize("dtype", [u8, dt.uint16, dt.uint64, i32])
def test_an_offset_of_any_dtype_inside_of_an_element_has_the_index_minus_1(dtype):
    """R122: -1 would be 255 as an offset of uint8, inside of a memory of 300 elements."""
    low = legalize(n(Op.POINTER_INDEX, memory(300), load(o := memory(1, dtype), at(o, i(0)))))
    assert low.src[1].src[2] is i(-1)
    assert low.src[1].dtype is dt.index


def test_access_through_pointers_is_one_access_each():
    """R117."""
    both = n(Op.PTRCAT, I0, GATED)
    assert _ops(legalize(load(B, both, n(Op.VECTORIZE, c(0.0), c(7.0))))).count(Op.LOAD) == 2
    low = legalize(store(both, n(Op.VECTORIZE, c(0.0), c(7.0))))
    assert low.op is Op.GROUP
    assert [len(s.src) for s in low.src] == [2, 3]


def test_unroll_computes_a_scalar_once_per_lane():
    """R111."""
    value = n(Op.MUL, b.range_(3, 5), i(10))
    low = legalize(n(Op.UNROLL, value, arg=A.LanesArg(((5, 3),))))
    assert [lane.min_max for lane in low.src] == [(0, 0), (10, 10), (20, 20)]


def test_unroll_leaves_closed_ranges_alone():
    """R111: a Range that a Reduce below has closed is no lane."""
    total = red(Op.B_REDUCE, n(Op.CAST, r(i(3), 5), arg=A.CastArg(i32)), r(i(3), 5))
    low = legalize(n(Op.UNROLL, total, arg=A.LanesArg(((5, 2),))))
    assert [lane.op for lane in low.src] == [Op.REDUCE, Op.REDUCE]


@pytest.mark.parametrize("dependent", [False, True])
def test_unroll_gives_the_ranges_that_a_lane_closes_ids_of_their_own(dependent):
    """R88, R111: two UNROLLs with the same lane share what it computes."""
    outer, other = r(i(2), 0), r(i(2), 2)
    inner = r(i(3), 1, outer) if dependent else r(i(3), 1)
    total = red(Op.B_REDUCE, n(Op.CAST, b.add(outer, inner), arg=A.CastArg(i32)), inner)
    first = lanes(Op.UNROLL, total, (0, 2))
    second = lanes(Op.UNROLL, b.add(total, n(Op.CAST, other, arg=A.CastArg(i32))), (0, 2), (2, 2))
    low = legalize(b.tuple_(first, second))
    assert [str(x) for x in find_broken_claims(low)] == []
    assert sorted(x.arg.axis_id for x in toposort(low) if x.op is Op.RANGE) == [3, 4]


def test_unroll_orders_the_ranges_that_a_lane_closes_as_before():
    """R109: ranges that one node closes nest by their ids."""
    loops = [r(i(2), 7), r(i(3), 5)]
    held = n(Op.DEFINE_LOCAL, arg=A.DefineArg(0, 8, f32))
    stored = b.after(held, store(at(held, b.add(b.mul(r(i(2), 0), i(4)), b.add(*loops))), c(1.0), *loops))
    low = legalize(lanes(Op.UNROLL, load(stored, at(stored, r(i(2), 0))), (0, 2)))
    ends = [x for x in toposort(low) if x.op is Op.END]
    assert [[(x.arg.axis_id, x.bound.const) for x in e.ranges] for e in ends] == [[(9, 2), (8, 3)], [(11, 2), (10, 3)]]


def test_unroll_replaces_a_range_only_where_it_is_open():
    """R111: a B_REDUCE or a Function below may have a Range of its own that is equal."""
    loop = r(i(3), 0)
    total = red(Op.B_REDUCE, n(Op.CAST, loop, arg=A.CastArg(i32)), loop)
    for closed in (total, b.get(b.function(b.tuple_(total)), 0)):
        low = legalize(lanes(Op.UNROLL, b.add(closed, n(Op.CAST, loop, arg=A.CastArg(i32))), (0, 3)))
        assert [str(x) for x in find_broken_claims(low)] == []
        assert [lane.lhs for lane in low.src] == [legalize(closed)] * 3


def test_call_is_ended_by_the_ranges_that_nothing_else_closes():
    """R121."""
    called = b.call(_sink, B, r(i(3), 5))
    low = legalize(called)
    assert (low.op, low.src[0].op, low.src[1]) == (Op.END, Op.CALL, b.range_(3, 5))
    assert legalize(b.end(called, r(i(3), 5))) is low


def test_if_of_a_linear_executes_its_body_itself():
    """R124: the Store is not listed beside it, its gated form is."""
    put = store(at(B, i(0)), c(1.0))
    block = n(Op.B_IF, TRUE, put)
    low = legalize(n(Op.LINEAR, at(B, i(0)), put, block, n(Op.ENDIF, block)))
    assert [len(x.src) for x in low.src if x.op is Op.STORE] == [3]
    assert [x.op for x in low.src] == [Op.INDEX, Op.STORE, Op.GROUP]


def test_a_call_is_listed_as_often_as_it_is_executed():
    """R151: and an instruction once."""
    first, second = b.call(_sink, B), b.call(b.sink(store(at(B, i(0)), c(2.0))), B)
    low = legalize(n(Op.LINEAR, first, second, first, b.after(B, first)))
    core = [legalize(x) for x in (first, second, first, b.after(B, first))]
    assert low.src == tuple(core)
    ended = b.end(store(I0, c(1.0)), r())
    assert [x.op for x in legalize(n(Op.LINEAR, r(), I0, ended, ended)).src] == [Op.RANGE, Op.INDEX, Op.STORE, Op.END]


def test_a_linear_lists_vectors_but_those_of_constants():
    """They are instructions; a Stack of Consts is none."""
    value, place = n(Op.VECTORIZE, b.load(b.at(B, 2)), c(1.0)), n(Op.VECTORIZE, i(0), i(1))
    low = legalize(n(Op.LINEAR, b.store(b.at(B, place), value)))
    assert [x.op for x in low.src] == [Op.INDEX, Op.INDEX, Op.LOAD, Op.STACK, Op.STORE]


def test_contract_puts_lanes_into_its_own_order():
    """R111: from (a outer, b inner) to (b outer, a inner)."""
    lanes = n(Op.VECTORIZE, *(c(float(k)) for k in range(6)))
    unrolled = n(Op.UNROLL, lanes, arg=A.LanesArg(((0, 2), (1, 3))))
    low = legalize(n(Op.CONTRACT, unrolled, arg=A.LanesArg(((1, 3), (0, 2)))))
    assert [x.const for x in low.src] == [0, 3, 1, 4, 2, 5]


def test_contract_of_a_scalar_repeats_it():
    """R106."""
    assert [x.const for x in legalize(n(Op.CONTRACT, c(2.0), arg=A.LanesArg(((0, 3),)))).src] == [2, 2, 2]


def test_if_joins_the_gates_of_its_stores():
    """R114."""
    p = v((), b8)
    low = legalize(n(Op.ENDIF, n(Op.B_IF, p, store(I0, c(1.0), r()), store(GATED, c(2.0)))))
    assert low.op is Op.GROUP
    assert [s.src[-1] for s in toposort(low) if s.op is Op.STORE] == [p, b.and_(TRUE, p)]


def test_the_effects_of_an_if_are_collected_once_however_many_paths_lead_to_them():
    """R124: a Linear lists none of them by itself."""
    put = store(I0, c(1.0))
    effect = put
    for _ in range(200):
        effect = n(Op.GROUP, effect, effect)
    block = n(Op.B_IF, TRUE, effect)
    linear = n(Op.LINEAR, at(B, i(0)), put, block, n(Op.ENDIF, block))
    assert [x.op for x in legalize(linear).src].count(Op.STORE) == 1


def test_program_is_its_most_lowered_stage():
    """R115."""
    stages = (n(Op.LINEAR), n(Op.SOURCE, arg=A.SourceArg("")), n(Op.PROGRAM_BINARY, arg=A.BinaryArg(b"")))
    found = [legalize(n(Op.B_PROGRAM, _sink, CPU, *stages[:k])).op for k in range(4)]
    assert found == [Op.SINK, Op.LINEAR, Op.LINEAR, Op.PROGRAM]


def test_bound_variables_are_their_values():
    """R112."""
    sized = n(Op.REDUCE_AXIS, b.param(0, (_var,), f32), arg=A.ReduceArg(Op.ADD, (0,)))
    low = legalize(b.sink(n(Op.BIND, _var, i(3)), sized))
    assert low.src[0] is i(3)
    assert low.src[1].src[0].shape == (3,)


def test_the_value_of_a_bound_variable_may_contain_other_bound_variables():
    """R112."""
    x, y, z = (n(Op.DEFINE_VAR, arg=A.DefineVarArg(name, 0, 7)) for name in "xyz")
    binds = (n(Op.BIND, x, y), n(Op.BIND, y, z), n(Op.BIND, z, i(3)))
    bound = b.sink(*binds, x, y, z)
    verify(bound)
    assert legalize(bound).src == (i(3),) * 6
    with pytest.raises(SpecError, match="depends on the variable itself"):
        legalize(b.sink(n(Op.BIND, x, y), n(Op.BIND, y, x)))


def test_new_buffers_have_numbers_of_their_own():
    """R113."""
    local = n(Op.DEFINE_LOCAL, arg=A.DefineArg(1, 4, f32))
    register = n(Op.DEFINE_REG, arg=A.DefineArg(1, 4, f32))
    scoped = memory(unique=n(Op.LUNIQUE, arg=A.UniqueArg(1)))
    seven = memory(unique=n(Op.UNIQUE, arg=A.UniqueArg(7)))
    low = legalize(b.sink(local, register, scoped, seven))
    assert [(x.arg.unique, x.arg.addrspace.name) for x in low.src] == [(8, "LOCAL"), (9, "REG"), (10, "GLOBAL"), (7, "GLOBAL")]


def test_devices_of_several():
    """R110, R116."""
    for target in (CPU, BOTH, n(Op.DEVICE, arg=A.DeviceArg(("X", "Y")))):
        low = legalize(red(Op.ALLREDUCE, sharded(1), target, by=Op.MIN))
        assert (low.shape, low.device, low.axis) == ((4, 2), target.arg.device, None)
    joined = legalize(n(Op.MSTACK, *_shards))
    assert (joined.shape, joined.device, joined.axis) == ((8,), PAIR, 0)
    part = legalize(n(Op.MSELECT, sharded(1), arg=A.MSelectArg(1)))
    assert (part.shape, part.device, part.axis) == ((4, 2), PAIR[1], None)
    marked = legalize(n(Op.MULTI, v((4, 6), device=PAIR), arg=A.MultiArg(1)))
    assert (marked.shape, marked.device, marked.axis) == ((4, 6), PAIR, 1)


def test_bufferize_is_a_store_in_loops_and_its_buffer():
    loops = (r(i(2), 1), r(i(3), 2))
    low = legalize(n(Op.BUFFERIZE, c(1.0), *loops, arg=A.BufferizeArg(None, A.AddrSpace.LOCAL)))
    assert (low.op, low.shape, low.src[1].op, len(low.src[1].src)) == (Op.AFTER, (2, 3), Op.END, 3)


def _read_bufferized(value, loop, index, **changed):
    """A LOAD of a BUFFERIZE of `value` over a loop."""
    held = n(Op.BUFFERIZE, value, loop, arg=A.BufferizeArg(None, A.AddrSpace.LOCAL, **changed))
    return legalize(n(Op.B_LOAD, held, n(Op.B_INDEX, held, index, arg=A.BIndexArg())))


def test_a_removable_bufferize_is_computed_where_it_is_read():
    loop, other = r(i(4), 1), r(i(3), 2)
    double = b.mul(b.cast(loop, dt.float32), c(2.0))
    core = legalize(other)
    assert _read_bufferized(double, loop, other) is b.mul(b.cast(core, dt.float32), c(2.0))
    counter = b.cast(other, dt.int32)  # an index of another dtype counts as the loop does
    assert _read_bufferized(double, loop, counter) is b.mul(b.cast(b.cast(b.cast(core, dt.int32), dt.index), dt.float32), c(2.0))


def test_what_keeps_a_bufferize_in_memory():
    loop, wide = r(i(4), 1), r(i(5), 2)
    double = b.mul(b.cast(loop, dt.float32), c(2.0))
    read = n(Op.B_LOAD, B, n(Op.B_INDEX, B, loop, arg=A.BIndexArg()))
    assert _read_bufferized(double, loop, i(3), removable=False).op is Op.LOAD
    assert _read_bufferized(double, loop, wide).op is Op.LOAD  # index 4 traps
    assert _read_bufferized(b.cast(read, dt.float32), loop, i(3)).op is Op.LOAD


def test_lanes_of_a_gep_and_a_cat():
    vector = n(Op.VECTORIZE, c(0.0), c(1.0), c(2.0))
    assert legalize(n(Op.GEP, vector, arg=A.GepArg((2,)))).shape == ()
    assert legalize(n(Op.CAT, vector, c(3.0), vector)).shape == (7,)
    assert at(B, i(0)).shape == ()
