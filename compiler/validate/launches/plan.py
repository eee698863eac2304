"""Claims about the memory plan: values that are live at the same time share no bytes, memory that the caller sees keeps its place,
arenas hold nothing else, and no written argument is passed twice, except to kernels written by hand.

Takes: the launch as KERNEL, as LINEAR, and as PLANNED, and the numbers of the caller's Buffers. Gives: claims `plan`. A value is
live from the first Call that takes its Buffer to the last one. Spec: Lowering Pipeline/Register-Memory Plan; Slice; R46 (Slice),
R61 (fresh buffers), R63 (Call), R126 (arenas).
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterable, Iterator, Mapping

from uops.compiler.validate import terms as T
from uops.compiler.validate.launches.private import generate_private_plan_claims
from uops.compiler.validate.model import ObligationKind, ValidationClaim
from uops.compiler.validate.terms import Condition, LinearSum
from uops.spec.ir.node import UOp
from uops.spec.ir.ops import Op


def generate_call_claims(before: UOp, after: UOp) -> Iterator[ValidationClaim]:
    """Claim that the Calls of a launch keep their arguments, and which of them they write."""
    for k, (old, new) in enumerate(zip(before.src, after.src, strict=True)):
        yield _claim(f"call {k} keeps its arguments", _truth(old.arguments == new.arguments and old.arg == new.arg))


def caller_buffer_numbers(memory: Iterable[UOp]) -> list[int]:
    """Return the numbers of the Buffers among the memory that the caller of a program sees."""
    return sorted(a.arg.unique for a in memory if a.op is Op.BUFFER)


def list_calls_of_written_kernels(launch: UOp) -> list[int]:
    """Return the numbers of the Calls of kernels written by hand: the same reference may be passed to one twice (R166)."""
    return [k for k, c in enumerate(launch.src) if c.body.op is not Op.SINK or (c.body.arg is not None and c.body.arg.scheduled)]


def generate_plan_claims(
    before: UOp, after: UOp, caller_buffers: Collection[int], written_kernels: Collection[int] = ()
) -> Iterator[ValidationClaim]:
    """Claim that each Buffer of a launch has one place, disjoint from all that are live with it.

    No arena is the caller's, and neither an arena nor a Buffer with a place in one is passed whole. `caller_buffers` are the
    numbers of the caller's Buffers, which keep their memory. `written_kernels` are the numbers of the Calls of kernels written by
    hand.
    """
    live_ranges: dict[UOp, tuple[int, int]] = {}
    places: dict[UOp, UOp] = {}
    passed_whole: set[int] = set()
    for k, (old, new) in enumerate(zip(before.src, after.src, strict=True)):
        if old.body is new.body or old.arg != new.arg:
            yield _claim(f"call {k} keeps its kernel", _truth(old.arg == new.arg))
        else:
            yield from generate_private_plan_claims(f"call {k}", old.body, new.body)
        if k not in written_kernels:
            yield from _claim_unique_written_arguments(k, old)
        for a, b in zip(old.arguments, new.arguments, strict=True):
            if b.op is Op.SLICE:
                if a not in live_ranges:
                    yield _claim(f"{_name(a)} is not the caller's", _truth(a.arg.unique not in caller_buffers))
                live_ranges[a] = (live_ranges.get(a, (k, k))[0], k)
                yield _claim(f"{_name(a)} has one place", _truth(places.setdefault(a, b) is b))
                yield _claim(f"{_name(a)} is inside of its arena", _slice_fits_and_matches_buffer_condition(a, b))
            else:
                if b.op is Op.BUFFER:
                    passed_whole.add(b.arg.unique)
                yield _claim(f"argument {a.op.name.lower()} of call {k} stays", _truth(a is b))
    for a in live_ranges:
        yield _claim(f"{_name(a)} is passed in its place alone", _truth(a.arg.unique not in passed_whole))
    for arena in dict.fromkeys(place.operand for place in places.values()):
        is_free = arena.op is Op.BUFFER and arena.arg.unique not in passed_whole and arena.arg.unique not in caller_buffers
        yield _claim(f"the arena {_describe_arena(arena)} holds intermediates alone", _truth(is_free))
    for a, b in itertools.combinations(live_ranges, 2):
        if (
            places[a].operand is places[b].operand
            and live_ranges[a][0] <= live_ranges[b][1]
            and live_ranges[b][0] <= live_ranges[a][1]
        ):
            yield _claim(f"{_name(a)} and {_name(b)} are needed at the same time", _disjoint_bytes_condition(places, a, b))


def _claim_unique_written_arguments(call_number: int, call: UOp) -> Iterator[ValidationClaim]:
    """Claim that each memory that a Call writes is one of its arguments only once."""
    written = range(len(call.arguments)) if call.arg is None or call.arg.written is None else call.arg.written
    for j in written:
        a = call.arguments[j]
        if a.op is Op.BUFFER or (a.op is Op.PARAM and a.arg.name is None):
            yield _claim(f"call {call_number} writes argument {j} and has it once", _truth(call.arguments.count(a) == 1))


def _size_bytes(a: UOp) -> int:
    return int(a.arg.size) * a.dtype.itemsize


def _offset(place: UOp) -> LinearSum:
    return LinearSum(int(place.offset.arg.value))


def _slice_fits_and_matches_buffer_condition(buffer: UOp, arena_slice: UOp) -> Condition:
    """Return the condition that the Slice `arena_slice` of an arena holds Buffer `buffer`."""
    arena = arena_slice.operand
    fits = T.conjoin(
        T.is_nonnegative(_offset(arena_slice)),
        T.is_nonnegative(LinearSum(_size_bytes(arena) - _offset(arena_slice).const * arena.dtype.itemsize - _size_bytes(buffer))),
    )
    return T.conjoin(fits, _truth(arena_slice.arg.size == buffer.arg.size and arena_slice.arg.dtype is buffer.dtype))


def _disjoint_bytes_condition(slices_by_buffer: Mapping[UOp, UOp], a: UOp, b: UOp) -> Condition:
    """Return the condition that the places of two Buffers share no byte."""
    x, y = slices_by_buffer[a], slices_by_buffer[b]
    scale = x.operand.dtype.itemsize
    first = LinearSum((_offset(y).const - _offset(x).const) * scale - _size_bytes(a))
    second = LinearSum((_offset(x).const - _offset(y).const) * scale - _size_bytes(b))
    return Condition("or", (T.is_nonnegative(first), T.is_nonnegative(second)))


def _truth(b: bool) -> Condition:
    return T.TRUE if b else T.FALSE


def _describe_arena(arena: UOp) -> str:
    return _name(arena) if arena.op is Op.BUFFER else arena.op.name.lower()


def _name(a: UOp) -> str:
    return f"buffer {a.arg.unique}"


def _claim(place: str, goal: Condition) -> ValidationClaim:
    return ValidationClaim(ObligationKind.PLAN, place, T.TRUE, goal)
