"""The memory plan: values that are needed at the same time do not share bytes, what the caller sees keeps its place, and no written
argument is passed twice.

Takes: the launch as KERNEL, as LINEAR, and as PLANNED, and the numbers of the caller's Buffers. Gives: claims `plan`. A value is
needed from the first Call that takes its Buffer to the last one. Spec: Lowering Pipeline/Register-Memory Plan; Slice; R46, R61,
R63, R126.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterator, Mapping

from uops.compiler.validate import terms as T
from uops.compiler.validate.model import Claim, Kind
from uops.compiler.validate.terms import Cond, Lin
from uops.spec.ir.node import UOp
from uops.spec.ir.ops import Op


def kept(before: UOp, after: UOp) -> Iterator[Claim]:
    """That the Calls of a launch have the arguments that they had, and write the same ones of them."""
    for k, (old, new) in enumerate(zip(before.src, after.src, strict=True)):
        yield _claim(f"call {k} keeps its arguments", _truth(old.src[1:] == new.src[1:] and old.arg == new.arg))


def callers(called: UOp) -> list[int]:
    """The numbers of the Buffers that the caller of a program sees, by the CALLIFIED graph."""
    return sorted(a.arg.unique for a in called.src[1:] if a.op is Op.BUFFER)


def plan(before: UOp, after: UOp, external: Collection[int]) -> Iterator[Claim]:
    """The claims of the places in a launch; `external` are the numbers of the caller's Buffers."""
    lives: dict[UOp, tuple[int, int]] = {}
    places: dict[UOp, UOp] = {}
    for k, (old, new) in enumerate(zip(before.src, after.src, strict=True)):
        yield _claim(f"call {k} keeps its kernel", _truth(old.src[0] is new.src[0] and old.arg == new.arg))
        yield from _arguments(k, old)
        for a, b in zip(old.src[1:], new.src[1:], strict=True):
            if b.op is Op.SLICE:
                if a not in lives:
                    yield _claim(f"{_name(a)} is not the caller's", _truth(a.arg.unique not in external))
                lives[a] = (lives.get(a, (k, k))[0], k)
                yield _claim(f"{_name(a)} has one place", _truth(places.setdefault(a, b) is b))
                yield _claim(f"{_name(a)} is inside of its arena", _inside(a, b))
            else:
                yield _claim(f"argument {a.op.name.lower()} of call {k} stays", _truth(a is b))
    for a, b in itertools.combinations(lives, 2):
        if places[a].src[0] is places[b].src[0] and lives[a][0] <= lives[b][1] and lives[b][0] <= lives[a][1]:
            yield _claim(f"{_name(a)} and {_name(b)} are needed at the same time", _apart(places, a, b))


def _arguments(k: int, call: UOp) -> Iterator[Claim]:
    written = range(len(call.src) - 1) if call.arg is None or call.arg.written is None else call.arg.written
    for j in written:
        a = call.src[1 + j]
        if a.op is Op.BUFFER or (a.op is Op.PARAM and a.arg.name is None):
            yield _claim(f"call {k} writes argument {j} and has it once", _truth(call.src[1:].count(a) == 1))


def _bytes(a: UOp) -> int:
    return int(a.arg.size) * a.dtype.itemsize


def _offset(place: UOp) -> Lin:
    return Lin(int(place.src[1].arg.value))


def _inside(a: UOp, place: UOp) -> Cond:
    arena = place.src[0]
    fits = T.both(
        T.at_least(_offset(place)), T.at_least(Lin(_bytes(arena) - _offset(place).const * arena.dtype.itemsize - _bytes(a)))
    )
    return T.both(fits, _truth(place.arg.size == a.arg.size and place.arg.dtype is a.dtype))


def _apart(places: Mapping[UOp, UOp], a: UOp, b: UOp) -> Cond:
    x, y = places[a], places[b]
    scale = x.src[0].dtype.itemsize
    first = Lin((_offset(y).const - _offset(x).const) * scale - _bytes(a))
    second = Lin((_offset(x).const - _offset(y).const) * scale - _bytes(b))
    return Cond("or", (T.at_least(first), T.at_least(second)))


def _truth(b: bool) -> Cond:
    return T.TRUE if b else T.FALSE


def _name(a: UOp) -> str:
    return f"buffer {a.arg.unique}"


def _claim(place: str, goal: Cond) -> Claim:
    return Claim(Kind.PLAN, place, T.TRUE, goal)
