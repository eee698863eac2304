"""The faults of a kernel name both places; the twin of each without the fault runs, and all schedules agree on it."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from uops.interp import run
from uops.interp.tensor.storage import NUMPY
from uops.spec.errors import Trap
from uops.spec.ir import build as b
from uops.spec.ir import dtypes as dt
from uops.spec.ir.args import AddrSpace, SpecialArg
from uops.spec.ir.axes import AxisType
from uops.spec.ir.node import UOp
from uops.spec.ir.ops import Op
from uops.spec.result import Result

I32 = dt.int32
Agree = Callable[..., Result]
Fault = Callable[..., str]
UNORDERED = [t for t in AxisType if t not in (AxisType.PLACEHOLDER, AxisType.LOOP, AxisType.REDUCE)]
LANES = (AxisType.LOCAL, AxisType.WARP, AxisType.GROUP_REDUCE)


def p(slot: int, n: int, d: dt.DType = I32) -> UOp:
    return b.param(slot, (n,), d)


def zeros(n: int) -> Any:
    return np.zeros(n, np.int32)


def one(target: UOp, at: UOp | int, value: int = 1) -> UOp:
    return b.store(b.at(target, at), b.const(value, I32))


def kernel(*effects: UOp) -> UOp:
    return b.sink(*effects, name="k")


def place(kind: AxisType, axis: int, k: int) -> str:
    words = "lane" if kind in LANES else "group" if kind in (AxisType.GLOBAL, AxisType.THREAD) else "iteration"
    return f"{words} (axis {axis}={k})"


# Races between items


def test_two_unordered_stores_race(fault: Fault, agree: Agree) -> None:
    first, second = one(p(0, 4), 2), one(p(0, 4), 2)
    assert first is second
    second = b.store(b.at(p(0, 4), 2), b.const(1, I32), b.const(True))
    message = fault(kernel(first, second), {"p0": zeros(4)})
    assert message == "race on element 2 of p0: STORE and STORE are unordered (R55)"
    after = b.store(b.at(b.after(p(0, 4), first), 2), b.const(2, I32))
    assert agree(kernel(after), {"p0": zeros(4)}).buffers["p0"].tolist() == [0, 0, 2, 0]


def test_a_load_and_a_store_race(fault: Fault, agree: Agree) -> None:
    read = b.store(b.at(p(1, 1), 0), b.load(b.at(p(0, 4), 3)))
    for root in (kernel(read, one(p(0, 4), 3)), kernel(one(p(0, 4), 3), read)):
        message = fault(root, {"p0": zeros(4), "p1": zeros(1)})
        assert "race on element 3 of p0" in message
        assert "LOAD" in message
        assert "STORE" in message
    ordered = b.store(b.at(p(1, 1), 0), b.load(b.at(b.after(p(0, 4), one(p(0, 4), 3)), 3)))
    assert agree(kernel(ordered), {"p0": zeros(4), "p1": zeros(1)}).buffers["p1"].tolist() == [1]


def test_other_elements_do_not_race(agree: Agree) -> None:
    root = kernel(one(p(0, 4), 1, 5), one(p(0, 4), 2, 6))
    assert agree(root, {"p0": zeros(4)}).buffers["p0"].tolist() == [0, 5, 6, 0]


def test_equal_values_race_too(fault: Fault) -> None:
    r = b.range_(2, 1, AxisType.UPCAST)
    root = kernel(b.end(b.store(b.at(b.after(p(0, 1), r), 0), b.const(1, I32)), r))
    assert "race on element 0 of p0" in fault(root, {"p0": zeros(1)})


# Races between iterations


@pytest.mark.parametrize("kind", UNORDERED)
def test_iterations_of_an_unordered_loop_race(kind: AxisType, fault: Fault) -> None:
    i = b.range_(4, 3, kind)
    root = kernel(b.end(b.store(b.at(p(0, 2), b.idiv(i, 2)), b.cast(i, I32)), i))
    message = fault(root, {"p0": zeros(2)})
    assert message == f"race on element 0 of p0: STORE of {place(kind, 3, 0)} and STORE of {place(kind, 3, 1)} are unordered (R55)"


@pytest.mark.parametrize("kind", [AxisType.LOOP, AxisType.REDUCE])
def test_iterations_of_an_ordered_loop_do_not(kind: AxisType, agree: Agree) -> None:
    i = b.range_(4, 3, kind)
    root = kernel(b.end(b.store(b.at(p(0, 2), b.idiv(i, 2)), b.cast(i, I32)), i))
    assert agree(root, {"p0": zeros(2)}).buffers["p0"].tolist() == [1, 3]


def test_the_outermost_unordered_loop_decides(fault: Fault, agree: Agree) -> None:
    """Ordered iterations inside of different unordered ones are unordered; the other way round they are ordered."""
    g, r = b.range_(2, 1, AxisType.GLOBAL), b.range_(2, 2, AxisType.REDUCE)
    effect = b.store(b.at(b.after(p(0, 2), g, r), 0), b.const(1, I32))
    message = fault(kernel(b.end(b.end(effect, r), g)), {"p0": zeros(2)})
    assert "group (axis 1=0)" in message
    assert "group (axis 1=1)" in message
    loop, u = b.range_(2, 1, AxisType.LOOP), b.range_(2, 2, AxisType.UPCAST)
    effect = b.store(b.at(b.after(p(0, 2), loop), u), b.cast(loop, I32))
    assert agree(kernel(b.end(b.end(effect, u), loop)), {"p0": zeros(2)}).buffers["p0"].tolist() == [1, 1]


def test_a_race_names_the_iterations_of_both_sides(fault: Fault) -> None:
    i, j = b.range_(2, 1, AxisType.LOOP), b.range_(3, 2, AxisType.UNROLL)
    read = b.load(b.at(p(0, 3), b.sub(2, j)))
    root = kernel(b.end(b.end(b.store(b.at(b.after(p(0, 3), i), j), read), j), i))
    message = fault(root, {"p0": zeros(3)})
    assert message.startswith("race on element ")
    assert "LOAD of iteration (axis 1=0, axis 2=0)" in message or "STORE of iteration (axis 1=0, axis 2=0)" in message


def test_a_reader_of_a_value_that_an_earlier_loop_left_is_ordered(agree: Agree) -> None:
    i, j = b.range_(4, 1, AxisType.GLOBAL), b.range_(4, 2, AxisType.GLOBAL)
    end = b.end(b.store(b.at(p(0, 4), i), b.cast(i, I32)), i)
    other = b.end(b.store(b.at(p(1, 4), j), b.load(b.at(b.after(p(0, 4), end), b.sub(3, j)))), j)
    assert agree(kernel(other), {"p0": zeros(4), "p1": zeros(4)}).buffers["p1"].tolist() == [3, 2, 1, 0]


def test_registers_race_as_all_memory_does(fault: Fault) -> None:
    u = b.range_(2, 1, AxisType.UNROLL)
    reg = b.buffer(1, I32, addrspace=AddrSpace.REG, unique=4)
    effect = b.end(b.store(b.at(b.after(reg, u), 0), b.cast(u, I32)), u)
    root = kernel(b.store(b.at(p(0, 1), 0), b.load(b.at(b.after(reg, effect), 0))))
    message = fault(root, {"p0": zeros(1)})
    assert message.startswith("race on element 0 of reg buffer 4: STORE of iteration (axis 1=0)")


@pytest.mark.parametrize("last", [b.index(1), b.variable("n", 1, 2)], ids=["constant", "variable"])
def test_a_vector_store_that_names_an_element_twice_traps(last: UOp, fault: Fault) -> None:
    twice = b.at(p(0, 4), b.stack(b.index(1), b.index(2), last))
    values = b.stack(*(b.const(k, I32) for k in range(3)))
    found = fault(kernel(b.store(twice, values)), {"p0": zeros(4), **({} if last.op is Op.CONST else {"n": 1})})
    assert found == "STORE writes element 1 of p0 twice (R51, R55)"


# Atomic adds


def test_atomic_adds_never_race_with_each_other(agree: Agree) -> None:
    i = b.range_(6, 1, AxisType.GLOBAL)
    first = UOp(Op.ATOMICADD, (b.at(p(0, 2), b.mod(i, 2)), b.cast(i, I32)))
    second = UOp(Op.ATOMICADD, (b.at(p(0, 2), 0), b.const(100, I32)))
    found = agree(kernel(b.end(first, i), second), {"p0": zeros(2)}, schedules=20)
    assert found.buffers["p0"].tolist() == [106, 9]


@pytest.mark.parametrize("other", ["LOAD", "STORE"])
def test_an_atomic_add_races_with_anything_else(other: str, fault: Fault, agree: Agree) -> None:
    add = UOp(Op.ATOMICADD, (b.at(p(0, 2), 1), b.const(3, I32)))
    effects = {"LOAD": b.store(b.at(p(1, 1), 0), b.load(b.at(p(0, 2), 1))), "STORE": one(p(0, 2), 1)}
    message = fault(kernel(effects[other], add), {"p0": zeros(2), "p1": zeros(1)})
    assert message == f"race on element 1 of p0: {other} and ATOMICADD are unordered (R55)"
    again = UOp(Op.ATOMICADD, (b.at(b.after(p(0, 2), effects[other]), 1), b.const(3, I32)))
    assert agree(kernel(again), {"p0": zeros(2), "p1": zeros(1)}).buffers["p0"].tolist() == [0, 4 if other == "STORE" else 3]


def test_float_sums_by_atomic_adds_are_rounded_once() -> None:
    values = np.array([1e8, 1.0, -1e8, 1.0] * 5, np.float32)
    i = b.range_(20, 1, AxisType.GLOBAL)
    add = UOp(Op.ATOMICADD, (b.at(p(0, 1, dt.float32), 0), b.load(b.at(p(1, 20, dt.float32), i))))
    inputs = {"p0": np.zeros(1, np.float32), "p1": values}
    found = {run(kernel(b.end(add, i)), inputs, schedule=s).buffers["p0"].item() for s in range(20)}
    assert found == {10.0}


FLOAT_SUMS = [
    (dt.float64, [1e308, 1e308, -1e308], 1e308),
    (dt.float64, [1e308, 1e308, 1e308], math.inf),
    (dt.float64, [1e308, 1e308, -math.inf], -math.inf),
    (dt.float32, [1.0, 2.0**-24, 2.0**-80], 1 + 2.0**-23),
]


@pytest.mark.parametrize(("d", "terms", "total"), FLOAT_SUMS)
def test_a_float_sum_is_the_exact_sum_rounded_once(d: dt.DType, terms: list[float], total: float, agree: Agree) -> None:
    """R129, in every order; also where partial sums overflow, and close to a midpoint of the dtype."""
    i = b.range_(3, 1, AxisType.GLOBAL)
    add = UOp(Op.ATOMICADD, (b.at(p(0, 1, d), 0), b.load(b.at(p(1, 3, d), i))))
    found = agree(kernel(b.end(add, i)), {"p0": np.zeros(1, NUMPY[d]), "p1": np.array(terms, NUMPY[d])})
    assert found.buffers["p0"].tolist() == [total]


def test_a_float_sum_is_not_rounded_where_another_element_is_read(agree: Agree) -> None:
    """R129: it is rounded once, when it is looked at, in every order of the iterations."""
    i, sums = b.range_(4, 1, AxisType.GLOBAL), p(0, 2, dt.float32)
    add = UOp(Op.ATOMICADD, (b.at(sums, 0), b.load(b.at(p(1, 4, dt.float32), i))))
    copy = b.store(b.at(p(2, 4, dt.float32), i), b.load(b.at(sums, b.add(b.mul(i, 0), 1))))
    inputs = {"p0": np.array([0, 7], np.float32), "p1": np.array([1e8, 1, -1e8, 1], np.float32), "p2": np.zeros(4, np.float32)}
    assert agree(kernel(b.end(b.group(add, copy), i)), inputs).buffers["p0"].tolist() == [2.0, 7.0]


def _add(target: UOp, k: int, value: float, d: dt.DType) -> UOp:
    return UOp(Op.ATOMICADD, (b.at(target, k), b.const(value, d)))


def test_an_atomic_add_in_another_dtype_adds_to_the_float_sum_in_its_bytes(agree: Agree) -> None:
    """R59, R129: 1 + 1, then one more in the exponent, is 4."""
    x = p(0, 1, dt.float32)
    bits = b.bitcast(b.after(x, _add(x, 0, 1.0, dt.float32)), I32)
    found = agree(kernel(_add(bits, 0, 1 << 23, I32)), {"p0": np.ones(1, np.float32)})
    assert found.buffers["p0"].tolist() == [4.0]


@pytest.mark.parametrize("narrow", [dt.float16, dt.bfloat16])
@pytest.mark.parametrize("k", [0, 1])
def test_float_sums_of_two_dtypes_in_the_same_bytes_have_terms_of_their_own(narrow: dt.DType, k: int, agree: Agree) -> None:
    """R59, R129: the upper half of float32 1 + 1 is bfloat16 2, which is a small number in float16; the lower half is 0."""
    x = p(0, 1, dt.float32)
    first = b.after(x, _add(x, 0, 1.0, dt.float32))
    parts = b.after(b.bitcast(first, narrow), _add(b.bitcast(first, narrow), k, 1.0, narrow))
    found = agree(kernel(_add(b.bitcast(parts, dt.float32), 0, 0.0, dt.float32)), {"p0": np.ones(1, np.float32)})
    halves = np.array([0, 0x4000], np.uint16).view(NUMPY[narrow])
    halves[k] = NUMPY[narrow].type(float(halves[k]) + 1.0)
    assert found.buffers["p0"].tolist() == halves.view(np.float32).tolist()


def test_an_atomic_add_of_the_element_itself_is_no_race(agree: Agree) -> None:
    """R161: the implicit Load of the value happens before the AtomicAdd."""
    root = kernel(UOp(Op.ATOMICADD, (b.at(p(0, 2), 1), b.at(p(0, 2), 1))))
    assert agree(root, {"p0": np.array([5, 7], np.int32)}).buffers["p0"].tolist() == [5, 14]


def test_an_atomic_add_to_what_was_never_written_is_a_fault(fault: Fault) -> None:
    add = UOp(Op.ATOMICADD, (b.at(b.buffer(2, I32, unique=3), 1), b.const(3, I32)))
    assert fault(kernel(add)) == "ATOMICADD adds to element 1 of b3, which was never written (R61)"


# Bounds


@pytest.mark.parametrize(("at", "name"), [(4, "4"), (-1, "-1")])
@pytest.mark.parametrize("access", ["LOAD", "STORE", "ATOMICADD"])
def test_an_address_out_of_bounds_is_named(access: str, at: int, name: str, fault: Fault) -> None:
    i = b.range_(2, 5)
    where = b.at(p(0, 4), b.add(b.mul(i, 0), at))
    effects = {
        "LOAD": b.store(b.at(p(1, 2), i), b.load(where)),
        "STORE": b.store(where, b.const(1, I32)),
        "ATOMICADD": UOp(Op.ATOMICADD, (where, b.const(1, I32))),
    }
    message = fault(kernel(b.end(effects[access], i)), {"p0": zeros(4), "p1": zeros(2)})
    assert message == f"{access} of iteration (axis 5=0): index {name} is outside of 4 elements of p0 (R45)"


def test_an_address_out_of_bounds_that_nobody_accesses_is_no_fault(agree: Agree) -> None:
    where = b.at(p(0, 4), 9)
    value = b.load(where, b.const(7, I32), b.const(False))
    root = kernel(b.store(b.at(p(1, 1), 0), value), b.store(where, b.const(1, I32), b.const(False)))
    assert agree(root, {"p0": zeros(4), "p1": zeros(1)}).buffers["p1"].tolist() == [7]


def test_an_index_of_a_value_traps_at_once(fault: Fault) -> None:
    value = b.stack(*(b.const(k, I32) for k in range(3)))
    i = b.range_(4, 1)
    message = fault(kernel(b.end(b.store(b.at(p(0, 4), i), b.at(value, i)), i)), {"p0": zeros(4)})
    assert "out of bounds" in message
    assert "iteration (axis 1=3)" in message


# What was never written


def test_an_uninitialised_element_is_named(fault: Fault, agree: Agree) -> None:
    i = b.range_(3, 1)
    buffer = b.buffer(3, I32, unique=5)
    end = b.end(b.store(b.at(buffer, i), b.cast(i, I32), b.ne(i, 1)), i)
    j = b.range_(3, 2)
    out = b.end(b.store(b.at(p(0, 3), j), b.load(b.at(b.after(buffer, end), j))), j)
    message = fault(kernel(out), {"p0": zeros(3)})
    assert message == "LOAD of iteration (axis 2=1) reads element 1 of b5, which was never written (R61)"
    found = agree(kernel(out), {"p0": zeros(3), "b5": np.full(3, 9, np.int32)})
    assert found.buffers["p0"].tolist() == [0, 9, 2]


def test_a_register_is_uninitialised_in_each_lane(fault: Fault) -> None:
    lane = b.range_(2, 1, AxisType.LOCAL)
    reg = b.buffer(1, I32, addrspace=AddrSpace.REG, unique=4)
    init = b.store(b.at(reg, 0), b.const(1, I32))
    effect = b.store(b.at(p(0, 2), lane), b.load(b.at(b.after(reg, init, lane), 0)))
    message = fault(kernel(b.end(effect, lane)), {"p0": zeros(2)})
    assert message == "LOAD of lane (axis 1=0) reads element 0 of reg buffer 4, which was never written (R61)"


def test_a_bool_byte_that_is_no_bool_is_a_fault() -> None:
    memory = p(0, 2, dt.bool_)
    changed = b.after(memory, b.store(b.at(b.bitcast(memory, dt.uint8), 1), b.const(2, dt.uint8)))
    root = kernel(b.store(b.at(p(1, 1, dt.bool_), 0), b.load(b.at(changed, 1))))
    inputs = {"p0": np.ones(2, bool), "p1": np.zeros(1, bool)}
    with pytest.raises(Trap, match=r"LOAD reads p0, which has a bool byte other than 0 and 1 \(R24\)"):
        run(root, inputs)


def test_a_fault_of_a_value_names_its_place(fault: Fault) -> None:
    i = b.range_(3, 1)
    shifted = b.shl(b.index(1), b.sub(1, i))
    message = fault(kernel(b.end(b.store(b.at(p(0, 3), i), b.cast(shifted, I32)), i)), {"p0": zeros(3)})
    assert message.endswith("at SHL of iteration (axis 1=2)")


# Races do not depend on the schedule


def test_every_schedule_finds_the_race() -> None:
    i = b.range_(8, 1, AxisType.GLOBAL)
    other = b.mod(b.add(i, 3), 8)
    value = b.load(b.at(p(0, 8), other))
    root = kernel(b.end(b.store(b.at(p(0, 8), i), value), i))
    for seed in range(20):
        with pytest.raises(Trap, match="race on element"):
            run(root, {"p0": zeros(8)}, schedule=seed)


def test_r45_r52_a_bitcast_of_a_row_out_of_bounds_is_touched_only_where_its_gate_is_true(agree: Agree, fault: Fault) -> None:
    i, memory = b.variable("i", 0, 9), b.param(0, (3, 4), dt.uint8)
    address = b.at(b.bitcast(UOp(Op.INDEX, (memory, i)), dt.uint32), 0)
    inputs = {"p0": np.arange(12, dtype=np.uint8).reshape(3, 4), "p1": np.zeros(1, np.uint32), "i": np.int64(5)}

    def copy(*rest: UOp) -> UOp:
        return kernel(b.store(b.at(p(1, 1, dt.uint32), 0), b.load(address, *rest)))

    assert agree(copy(b.const(7, dt.uint32), UOp(Op.CMPLT, (i, b.index(3)))), inputs).buffers["p1"].tolist() == [7]
    assert "index 5" in fault(copy(), inputs)


@pytest.mark.parametrize("offset", [None, 5])
def test_r26_r51_a_where_reads_the_operand_that_it_does_not_choose(offset: int | None, fault: Fault) -> None:
    r = b.range_(4, 0)
    never = b.buffer(4, I32, unique=9, addrspace=AddrSpace.REG)
    other = b.at(never, r) if offset is None else b.at(p(1, 3), b.add(r, b.index(offset)))
    for operands in ((b.const(True), b.const(1, I32), other), (b.const(False), other, b.const(1, I32))):
        root = kernel(b.end(b.store(b.at(p(0, 4), r), b.where(*operands)), r))
        assert ("R61" if offset is None else "R45") in fault(root, {"p0": zeros(4), "p1": zeros(3)})


@pytest.mark.parametrize("name", ["²", "1²", "lidx²"])
def test_r125_a_digit_that_is_no_decimal_is_part_of_the_name_of_a_special(name: str, agree: Agree) -> None:
    lane = UOp(Op.SPECIAL, (b.index(4),), SpecialArg(name))
    assert agree(kernel(b.store(b.at(p(0, 4), lane), b.const(5, I32))), {"p0": zeros(4)}).buffers["p0"].tolist() == [5] * 4


@pytest.mark.parametrize("offset", [None, 5])
def test_r51_r52_a_load_whose_gate_is_true_reads_its_alternative(offset: int | None, fault: Fault) -> None:
    r = b.range_(4, 0)
    never = b.buffer(4, I32, unique=9, addrspace=AddrSpace.REG)
    other = b.at(never, r) if offset is None else b.at(p(1, 3), b.add(r, b.index(offset)))
    root = kernel(b.end(b.store(b.at(p(0, 4), r), b.load(b.at(p(2, 4), r), other, b.const(True))), r))
    assert ("R61" if offset is None else "R45") in fault(root, {"p0": zeros(4), "p1": zeros(3), "p2": zeros(4)})
