"""Values of kernels by the program that was split: what is right is proved, and what is wrong is not."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest

from uops.backends.registry import create_backend
from uops.compiler.config import Config
from uops.compiler.log import LoweringLog
from uops.compiler.pipeline import record_lowering_up_to_plan
from uops.compiler.validate.arrays.definitions import KernelDefinitions, decide_values_of_split_kernels
from uops.compiler.validate.model import DecisionMethod
from uops.compiler.validate.values import decide_equal_terms
from uops.spec.ir import build as b
from uops.spec.ir import dtypes as dt
from uops.spec.ir.node import UOp, rebuild, toposort
from uops.spec.ir.ops import Op

X, Y = b.param(0, (4, 6), dt.float32), b.param(1, (4, 6), dt.float32)
ROW = b.param(2, (6,), dt.int32)
MEMORY = b.buffer(6, dt.int32, unique=9)


def _summed(x: UOp, *axes: int) -> UOp:
    return b.reduce(x, Op.ADD, axes)


PROGRAMS: dict[str, UOp] = {
    "elementwise": b.add(b.mul(X, 2.0), Y),
    "permute": b.add(b.permute(X, (1, 0)), 1.0),
    "flip": b.flip(X, (True, False)),
    "reshape": b.reshape(b.permute(X, (1, 0)), (3, 8)),
    "expand": b.add(X, b.expand(b.reshape(b.param(3, (4,), dt.float32), (4, 1)), (4, 6))),
    "pad": b.add(b.pad(X, (1, 2), (6, 9)), 1.0),
    "shrink": b.shrink(X, (1, 2), (2, 3)),
    "sum": _summed(b.mul(X, Y), 1),
    "greatest of sums": b.reduce(_summed(X, 1), Op.MAX, (0,)),
    "softmax": b.mul(UOp(Op.EXP2, (b.sub(X, b.expand(b.reduce(X, Op.MAX, (1,)), (4, 6))),)), _summed(X, 1)),
    "product": _summed(b.mul(b.reshape(X, (4, 1, 6)), b.reshape(Y, (1, 4, 6))), 2),
    "stack": b.stack(b.shrink(X, (0, 0), (1, 6)), b.shrink(Y, (3, 0), (1, 6))),
    "gather": b.at(X, b.param(3, (3,), dt.uint8)),
    "row": b.at(X, 2),
    "two kernels": _summed(b.contiguous(b.add(X, 1.0)), 0),
    "store in place": b.after(MEMORY, b.store(MEMORY, b.add(MEMORY, ROW))),
    "store to a part": b.after(MEMORY, b.store(b.shrink(MEMORY, (2,), (3,)), b.shrink(ROW, (0,), (3,)))),
    "store backwards": b.after(MEMORY, b.store(b.flip(MEMORY, (True,)), ROW)),
    "number as a condition": b.where(ROW, b.mul(ROW, 3), b.add(ROW, 7)),
    "variable": b.shrink(X, (b.variable("k", 0, 2), 0), (2, 6)),
    "large sum": _summed(b.param(3, (1, 1 << 20), dt.float32), 1),
}  # fmt: skip


def _lower(graph: UOp) -> tuple[UOp, UOp, LoweringLog]:
    """Return the callified program, the launch of its kernels, and the log."""
    graphs, _, log = record_lowering_up_to_plan(graph, create_backend("c").target, Config(reuse=False, validate=True))
    return graphs["callify"], graphs["join"], log


def _methods(callified: UOp, launch: UOp, log: LoweringLog) -> list[DecisionMethod | None]:
    decide = functools.partial(decide_equal_terms, with_laws=False)
    return [v.by for v in decide_values_of_split_kernels(callified, launch, log, decide)]


def _is_proved(callified: UOp, launch: UOp, log: LoweringLog) -> bool:
    methods = _methods(callified, launch, log)
    assert methods
    return all(m in (DecisionMethod.STRUCTURE, DecisionMethod.FINGERPRINTS) for m in methods)


@pytest.mark.parametrize("name", PROGRAMS)
def test_kernels_store_the_values_of_their_program(name: str) -> None:
    assert _is_proved(*_lower(PROGRAMS[name]))


def _change_index_constants(launch: UOp) -> Iterator[UOp]:
    """Yield launches in which one integer of an address or a gate is another one."""
    for k in {u: None for call in launch.src for u in toposort(call.body) if u.op is Op.CONST and u.dtype is dt.index}:
        yield _change(launch, lambda u, k=k: b.index(int(k.arg.value) + 1) if u is k else u)


def _change_reduces(launch: UOp) -> Iterator[UOp]:
    for r in {u: None for call in launch.src for u in toposort(call.body) if u.op is Op.REDUCE}:
        other = Op.ADD if r.arg.op is Op.MAX else Op.MAX
        yield _change(launch, lambda u, r=r, other=other: u.replace(arg=replace(u.arg, op=other)) if u is r else u)


def _drop_gates(launch: UOp) -> Iterator[UOp]:
    for gated in {u: None for call in launch.src for u in toposort(call.body) if u.op is Op.LOAD and u.gate is not None}:
        yield _change(launch, lambda u, gated=gated: u.replace(src=u.src[:1]) if u is gated else u)


def _swap_operands(launch: UOp) -> Iterator[UOp]:
    for d in {
        u: None for call in launch.src for u in toposort(call.body) if u.op in (Op.SUB, Op.WHERE) and u.dtype is not dt.index
    }:
        yield _change(launch, lambda u, d=d: u.replace(src=(*u.src[:-2], u.src[-1], u.src[-2])) if u is d else u)


def _change(launch: UOp, change: Callable[[UOp], UOp]) -> UOp:
    """Return a launch with a change in its bodies. Memory keeps its sizes."""

    def change_body(body: UOp) -> UOp:
        params = {u.arg.slot: u for u in toposort(body) if u.op is Op.PARAM}
        return rebuild(body, lambda u: params[u.arg.slot] if u.op is Op.PARAM else change(u))

    return launch.replace(src=tuple(call.replace(src=(change_body(call.body), *call.arguments)) for call in launch.src))


@pytest.mark.parametrize("change", [_change_index_constants, _change_reduces, _drop_gates, _swap_operands])
@pytest.mark.parametrize("name", PROGRAMS)
def test_no_other_kernel_is_proved(name: str, change: Callable[[UOp], Iterator[UOp]]) -> None:
    if name in ("variable", "gather", "large sum") and change is _drop_gates:
        return  # an Index out of range has any value
    callified, launch, log = _lower(PROGRAMS[name])
    for changed in (c for c in change(launch) if c is not launch):  # an extent of memory is no integer of an address
        assert not _is_proved(callified, changed, log)


def test_kernels_in_another_order_read_other_versions() -> None:
    callified, launch, log = _lower(PROGRAMS["two kernels"])
    assert len(launch.src) == 2
    assert not _is_proved(callified, launch.replace(src=launch.src[::-1]), log)


def test_a_wrong_hint_proves_nothing() -> None:
    halves = b.contiguous(b.add(X, 1.0)), b.contiguous(b.add(Y, 1.0))
    callified, launch, log = _lower(b.sub(_summed(halves[0], 1), _summed(halves[1], 1)))
    assert _is_proved(callified, launch, log)
    (split,) = (m for m in log.transforms if m.pass_name == "realise")
    values = list(split.replacements)
    hints = dict(zip(values, [split.replacements[u] for u in reversed(values)], strict=True))
    log.transforms[log.transforms.index(split)] = replace(split, replacements=hints)
    assert not _is_proved(callified, launch, log)


def test_another_program_is_not_proved() -> None:
    _, launch, log = _lower(PROGRAMS["sum"])
    other, *_ = _lower(PROGRAMS["product"])
    assert _methods(other, launch, log) == [DecisionMethod.INTERPRETER]


def test_a_kernel_that_is_written_by_hand_is_no_store_of_the_program() -> None:
    (kernel,) = _lower(b.add(ROW, 1))[1].src
    body = kernel.body.replace(arg=replace(kernel.body.arg, scheduled=True))
    call = b.call(body, MEMORY, ROW, written=(0,))
    callified, launch, log = _lower(b.add(b.after(MEMORY, call), 1))
    assert launch.src[0].body is body
    definitions = KernelDefinitions(callified, launch, {})
    assert definitions.is_split == [False, True]
    assert _methods(callified, launch, log)[0] is DecisionMethod.INTERPRETER


@pytest.mark.parametrize("rows", [32, 200])
def test_a_kernel_that_stores_some_rows_is_not_proved(rows: int) -> None:
    """A small kernel is compared in all iterations. A large one is not, so its elements are counted."""
    x = b.param(0, (rows, 96), dt.float32)
    callified, launch, log = _lower(b.permute(b.add(x, 1.0), (1, 0)))
    assert _is_proved(callified, launch, log)
    (bound,) = {r.bound for call in launch.src for r in toposort(call.body) if r.op is Op.RANGE and r.bound is b.index(rows)}
    fewer = _change(launch, lambda u: b.range_(rows - 1, u.arg.axis_id, u.arg.type) if u.op is Op.RANGE and u.bound is bound else u)
    assert fewer is not launch
    assert not _is_proved(callified, fewer, log)


def test_a_store_without_a_kernel_proves_nothing() -> None:
    other = b.buffer(6, dt.int32, unique=10)
    both = b.tuple_(PROGRAMS["store in place"], b.after(other, b.store(other, ROW)))
    callified, launch, log = _lower(both)
    assert _is_proved(callified, launch, log)
    for k in range(len(launch.src)):
        assert not _is_proved(callified, launch.replace(src=(*launch.src[:k], *launch.src[k + 1 :])), log)


def test_memory_that_is_read_after_some_of_its_stores_is_left_to_the_interpreter() -> None:
    halves = [b.store(b.shrink(MEMORY, (k,), (3,)), b.shrink(ROW, (k,), (3,))) for k in (0, 3)]
    both, second = b.after(MEMORY, *halves), b.shrink(b.after(MEMORY, halves[1]), (3,), (3,))
    callified, launch, log = _lower(b.add(both, 1))
    assert _is_proved(callified, launch, log)
    callified, launch, log = _lower(b.tuple_(both, b.add(second, 1)))
    for order in itertools.permutations(launch.src):  # the first half is stored first, and then read in place of the second
        assert not _is_proved(callified, launch.replace(src=order), log)


def _one_kernel(kernel: UOp, *arguments: UOp, then: tuple[UOp, ...] = ()) -> UOp:
    return UOp(Op.LINEAR, (b.call(kernel, *arguments, written=(0,)), *then))


def _memory(slot: int, size: int = 6, d: dt.DType = dt.int32) -> UOp:
    return b.param(slot, (size,), d)


@pytest.mark.parametrize("size", [6, 9216])
def test_a_kernel_that_reads_what_its_other_iterations_write_is_not_proved(size: int) -> None:
    """A Store of the program reads all of its value first (R54), and a kernel stores one element after the other."""
    memory, r = b.buffer(size, dt.int32, unique=9), b.range_(size, 0)
    callified, launch, log = _lower(b.after(memory, b.store(memory, b.flip(memory, (True,)))))
    assert _is_proved(callified, launch, log)
    backwards = b.load(b.at(_memory(0, size), b.add(b.mul(r, -1), size - 1)))  # as the program's own text has it
    in_place = b.sink(b.end(b.store(b.at(_memory(0, size), r), backwards), r))
    assert not _is_proved(callified, _one_kernel(in_place, memory, then=launch.src[-1:]), log)


def test_stores_to_equal_positions_are_not_proved_to_add() -> None:
    positions = b.stack(b.index(1), b.index(1), b.index(2))
    view, r = b.at(MEMORY, positions), b.range_(3, 0)
    callified, launch, log = _lower(b.after(MEMORY, b.store(view, b.add(view, b.shrink(ROW, (0,), (3,))))))
    at = b.at(_memory(0), b.where(UOp(Op.CMPLT, (r, b.index(2))), b.index(1), b.index(2)))
    adding = b.sink(b.end(b.store(at, b.add(b.load(at), b.load(b.at(_memory(1), r)))), r))
    assert not _is_proved(callified, _one_kernel(adding, MEMORY, ROW, then=launch.src[-1:]), log)


def test_arguments_of_another_kind_are_not_proved() -> None:
    k, m = (b.variable(name, 0, 3) for name in "km")
    callified, launch, log = _lower(b.shrink(b.param(0, (9, 9), dt.float32), (k, m), (4, 4)))
    assert _is_proved(callified, launch, log)
    (call,) = launch.src
    exchanged = {k: m, m: k}
    swapped = call.replace(src=(call.body, *(exchanged.get(a, a) for a in call.arguments)))
    assert swapped is not call
    assert not _is_proved(callified, launch.replace(src=(swapped,)), log)
    callified, launch, log = _lower(b.add(X, Y))
    r = b.range_(24, 0)
    x, y = (b.load(b.at(_memory(slot, 24), r)) for slot in (1, 2))
    as_integers = b.sink(b.end(b.store(b.at(_memory(0, 24), r), b.add(x, y)), r))
    (call,) = launch.src
    assert not _is_proved(callified, _one_kernel(as_integers, *call.arguments), log)


def test_a_call_without_its_kernel_proves_nothing() -> None:
    (kernel,) = _lower(b.add(ROW, 1))[1].src
    call = b.call(kernel.body.replace(arg=replace(kernel.body.arg, scheduled=True)), MEMORY, ROW, written=(0,))
    callified, launch, log = _lower(b.tuple_(b.add(ROW, 2), b.after(MEMORY, call)))
    for k, _ in enumerate(launch.src):
        fewer = launch.replace(src=(*launch.src[:k], *launch.src[k + 1 :]))
        assert DecisionMethod.STRUCTURE not in _methods(callified, fewer, log)


@pytest.mark.parametrize("d", [dt.float16, dt.int32, dt.float32])
def test_a_hint_of_the_output_or_of_narrower_memory_proves_nothing(d: dt.DType) -> None:
    inner = b.add(X, 1.0)
    callified, launch, log = _lower(b.mul(inner, 2.0))
    (split,) = (m for m in log.transforms if m.pass_name == "realise")
    (value,) = (u for u in toposort(callified.body) if u.op is Op.ADD)
    (call,) = launch.src
    output = call.arguments[0]
    r = b.range_(24, 0)
    stored = b.cast(b.add(b.load(b.at(_memory(1, 24, dt.float32), r)), 1.0), d)
    to_output = b.sink(b.end(b.store(b.at(_memory(0, 24, d), r), stored), r))
    hinted = output if d is dt.float32 else b.buffer(24, d, unique=77)
    doubled = b.mul(b.cast(b.load(b.at(_memory(1, 24, d), r)), dt.float32), 2.0)
    last = b.call(b.sink(b.end(b.store(b.at(_memory(0, 24, dt.float32), r), doubled), r)), output, hinted, written=(0,))
    log.transforms[log.transforms.index(split)] = replace(split, replacements={value: hinted})
    then = () if hinted is output else (last,)
    assert not _is_proved(callified, _one_kernel(to_output, hinted, *call.arguments[1:], then=then), log)
