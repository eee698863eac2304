"""Instruction lists under construction, in which arithmetic finds its place by itself. Spec: Linear, End, Endif."""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from uops.compiler.rewrite.lowering_cache import memoize_per_lowering
from uops.spec.ir import dtypes as dt
from uops.spec.ir.node import UOp, toposort
from uops.spec.ir.ops import BLOCK_CLOSERS, BLOCK_OPENERS, Op
from uops.spec.ir.scope import VIEWS, is_private_buffer

_BLOCK_DELIMITERS = BLOCK_OPENERS | BLOCK_CLOSERS


@memoize_per_lowering
def group_instructions_by_op(linear: UOp) -> Mapping[Op, Sequence[UOp]]:
    """Return the instructions of a LINEAR by op, in order."""
    groups: dict[Op, list[UOp]] = defaultdict(list)
    for u in linear.src:
        groups[u.op].append(u)
    return dict(groups)


class PrivateMemoryUses(NamedTuple):
    """The private Buffers of an instruction list, and where it names them.

    `buffer_of` maps each private Buffer, and each view of it, to the Buffer. `events` are the instructions that name one of these,
    and those that open or close a block, in order, each with its position.
    """

    buffer_of: dict[UOp, UOp]
    events: list[tuple[int, UOp]]


@memoize_per_lowering
def find_uses_of_private_memory(linear: UOp) -> PrivateMemoryUses:
    """Return where a LINEAR names its private Buffers."""
    buffer_of = {u: u for u in group_instructions_by_op(linear).get(Op.BUFFER, ()) if is_private_buffer(u)}
    events: list[tuple[int, UOp]] = []
    names_none = buffer_of.keys().isdisjoint
    for position, u in enumerate(linear.src):
        if not names_none(u.src):
            events.append((position, u))
            if u.op in VIEWS and (viewed := u.src[0]) in buffer_of:  # operand or buffer
                buffer_of[u] = buffer_of[viewed]
        elif u.op in _BLOCK_DELIMITERS:
            events.append((position, u))
    return PrivateMemoryUses(buffer_of, events)


class InstructionList:
    """The instructions of a kernel, appended in order.

    Arithmetic is not appended. It stands right behind the last of its sources, once, where every later user sees it. So each
    entry of `groups` is an instruction, followed by the arithmetic on values of which it gives the last.
    """

    def __init__(self) -> None:
        self.groups: list[list[UOp]] = [[]]  # the first group has no sources
        self.group_of: dict[UOp, int] = {}

    def __iter__(self) -> Iterator[UOp]:
        return itertools.chain.from_iterable(self.groups)

    def append(self, u: UOp) -> UOp:
        """Append an instruction that is not in the list, after the arithmetic that it needs, and return it."""
        for s in u.src if u.op is not Op.PARAM else ():  # the shape of a Param is part of the Param
            self._place_arithmetic(s)
        if u not in self.group_of:
            self.group_of[u] = len(self.groups)
            self.groups.append([u])
        return u

    def prepend(self, u: UOp) -> UOp:
        """Put an instruction without sources before all others, and return it."""
        self._append_to_group(u, 0)
        return u

    def _append_to_group(self, u: UOp, group: int) -> None:
        self.group_of[u] = group
        self.groups[group].append(u)

    def _place_arithmetic(self, value: UOp) -> None:
        """Put each node that computes a value, and is not in the list, right behind the last of its sources."""
        for u in toposort(value, gate=lambda x: x not in self.group_of):
            if u not in self.group_of and u.op is not Op.CONST and (u.op is not Op.STACK or u.constants_of_stack is None):
                self._append_to_group(u, max([self.group_of.get(s, 0) for s in u.src], default=0))

    def last_effect(self, after: int = 0) -> UOp | None:
        """Return the last instruction with an effect, of those behind the group `after`; None if there is none."""
        heads = (group[0] for group in reversed(self.groups[max(1, after + 1) :]))
        return next((u for u in heads if u.dtype is dt.void), None)

    def close_block_or_remove_if_effectless(self, opening: UOp) -> UOp | None:
        """Append the End of a loop or the Endif of an If, and return it; a block without an effect is removed."""
        start = self.group_of[opening]
        effect = self.last_effect(start)
        if effect is None:
            for u in itertools.chain.from_iterable(self.groups[start:]):
                del self.group_of[u]
            del self.groups[start:]
            return None
        return self.append(UOp(Op.END, (effect, opening)) if opening.op is Op.RANGE else UOp(Op.ENDIF, (opening,)))
