"""Which iterations access which elements of a memory, and so whether one may find what another one left there.

Takes: an evaluation of a kernel, with its memories. Gives: the Loads that may give what an earlier iteration stored, and others.
Spec: R52 (Load), R55 (races).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Protocol

import numpy as np

from uops.compiler.validate.fingerprints.integers import Integer, NotEvaluable, Numbers, with_rank
from uops.compiler.validate.fingerprints.memory import MemoryContents
from uops.compiler.validate.fingerprints.mixing import Fingerprints
from uops.compiler.validate.fingerprints.operations import Mask
from uops.compiler.validate.fingerprints.terms import TermValue
from uops.compiler.validate.fingerprints.text import KernelText, list_positions
from uops.compiler.validate.reader import PlacedNode
from uops.spec.ir.axes import GRID, WORKGROUP
from uops.spec.ir.node import UOp


class MemoryEvaluation(Protocol):
    """An evaluation of a kernel: the axes of its loops, its memories, and positions in them."""

    text: KernelText
    sums: Collection[UOp]
    memories: Mapping[UOp, MemoryContents]
    axis_of: Mapping[UOp, int]
    rank: int

    def number_iterations(self, loops: Sequence[UOp]) -> tuple[Numbers, int]:
        """Return a number from 0 for each iteration of some loops together, and how many there are."""

    def find_positions(self, access: UOp, gate: Mask | None) -> tuple[UOp, Integer | Fingerprints]:
        """Return the memory of an access, and its positions."""

    def evaluate(self, u: UOp) -> TermValue:
        """Return the value of a node."""


class ElementSharing:
    """The elements that accesses of one evaluation have in common."""

    def __init__(self, evaluation: MemoryEvaluation) -> None:
        self.evaluation = evaluation
        self.carried: dict[UOp, frozenset[UOp]] = {}
        self.owners: dict[tuple[tuple[UOp, ...], tuple[UOp, ...]], Numbers | None] = {}
        self.store_counts: dict[UOp, Numbers] = {}
        self.have_own_elements: dict[tuple[UOp, tuple[UOp, ...]], bool] = {}
        self.ungated_elements: dict[UOp, Numbers | None] = {}

    def list_sequential_shared_loops(self, memory: MemoryContents, p: PlacedNode) -> list[UOp]:
        """Return the loops around an access whose iterations, one after the other, share the memory."""
        return [r for r in p.loops if is_sequential(r) and r not in memory.private]

    def find_carried_loads(self, m: UOp) -> frozenset[UOp]:
        """Return the Loads of a memory that may give what a Store of an earlier iteration left."""
        if m not in self.carried:
            text, memory = self.evaluation.text, self.evaluation.memories[m]
            self.carried[m] = frozenset(
                p.node for p in text.list_loads(m) if any(self.may_carry(memory, s, p) for s in text.list_stores(m))
            )
        return self.carried[m]

    def may_carry(self, memory: MemoryContents, store: PlacedNode, other: PlacedNode) -> bool:
        """Return False if `other` accesses no element that `store` writes in another iteration of the loops around both."""
        loops = tuple(r for r in self.list_sequential_shared_loops(memory, store) if r in other.loops)
        if any(r in self.evaluation.sums for r in loops):
            return True
        if not loops or self._access_elements_of_their_own(memory, loops):
            return False
        owner = self._find_iterations_that_access(memory, (store.node,), loops)
        read = self._find_elements(memory, other.node, self.evaluation.number_iterations(loops)[0])
        if owner is None or read is None:
            return True
        at, iteration = read
        return not ((owner[at] == iteration) | (owner[at] < 0)).all()

    def _access_elements_of_their_own(self, memory: MemoryContents, loops: tuple[UOp, ...]) -> bool:
        """Return True if no two iterations of loops access one element, as far as that is known."""
        key = memory.node, loops
        if key not in self.have_own_elements:
            around = [p.node for p in self.evaluation.text.accesses[memory.node] if set(loops).issubset(p.loops)]
            self.have_own_elements[key] = self._find_iterations_that_access(memory, tuple(around), loops) is not None
        return self.have_own_elements[key]

    def _find_iterations_that_access(
        self, memory: MemoryContents, accesses: tuple[UOp, ...], loops: tuple[UOp, ...]
    ) -> Numbers | None:
        """Return which iteration of the loops accesses each element, -1 for none; None if two do, or if it is not known."""
        key = accesses, loops
        if key not in self.owners:
            number, count = self.evaluation.number_iterations(loops)
            owner: Numbers | None = np.full(memory.contents.size, -1, np.int64)
            for access in accesses:
                positions = self._find_ungated_elements(memory, access)
                if positions is None or (count > 1 and all(positions.shape[self.evaluation.axis_of[r]] == 1 for r in loops)):
                    owner = None  # every iteration accesses the same elements, unless conditions prevent it
                found = None if owner is None else self._find_elements(memory, access, number)
                if owner is None or found is None:
                    owner = None
                    break
                at, iteration = found
                owner[at] = np.where(owner[at] < 0, iteration, owner[at])
                owner = owner if (owner[at] == iteration).all() else None
            self.owners[key] = owner
        return self.owners[key]

    def _find_elements(self, memory: MemoryContents, access: UOp, number: Numbers) -> tuple[Numbers, Numbers] | None:
        """Return the elements of an access and the numbers of the iterations that access them; None if they are not known.

        Iterations in which a condition by loops alone fails are left out.
        """
        positions = self._find_ungated_elements(memory, access)
        if positions is None:
            return None
        conditions = [self.evaluation.evaluate(u).integer for u in self.evaluation.text.conditions_by_loops_alone[access]]
        masks = [c.require_numbers() != 0 for c in conditions if c is not None]
        rank = max(x.ndim for x in (positions, *masks))
        at, iteration, *masks = np.broadcast_arrays(*(with_rank(x, rank) for x in (positions, number, *masks)))
        executed = np.logical_and.reduce(masks) if masks else None
        return (at, iteration) if executed is None else (at[executed], iteration[executed])

    def _find_ungated_elements(self, memory: MemoryContents, access: UOp) -> Numbers | None:
        """Return the elements of an access, whether its gate holds or not; None if they are not known."""
        if access not in self.ungated_elements:
            self.ungated_elements[access] = self._compute_ungated_elements(memory, access)
        return self.ungated_elements[access]

    def _compute_ungated_elements(self, memory: MemoryContents, access: UOp) -> Numbers | None:
        positions = list_positions(access)
        if not positions or positions != self.evaluation.text.positions_by_loops_alone[access]:
            return None
        _, found = self.evaluation.find_positions(access, np.zeros((1,) * self.evaluation.rank, np.bool_))
        return memory.find_elements(found) if isinstance(found, Integer) else None

    def require_update(self, memory: MemoryContents, loads: Collection[UOp], store: PlacedNode, at: Numbers) -> None:
        """Raise NotEvaluable unless a Store updates what these Loads gave: in the same iteration, and before any other Store."""
        text = self.evaluation.text
        shared = self.list_sequential_shared_loops(memory, store)
        for load in (p for p in text.accesses[memory.node] if p.node in loads):
            if not set(text.loops_around(load)).issuperset(shared):
                raise NotEvaluable("an accumulator is loaded outside of the loop that adds to it")
            for other in text.list_stores(memory.node):
                if other is not store and text.may_lie_between(load.node, other.node, store.node):
                    found = self._find_elements(memory, other.node, np.zeros((1,) * self.evaluation.rank, np.int64))
                    written = np.zeros(memory.contents.size, np.bool_)
                    if found is not None:
                        written[found[0]] = True
                    if found is None or written[at].any():
                        raise NotEvaluable("an accumulator is stored between its Load and its Store")

    def count_stores_by_element(self, memory: MemoryContents) -> Numbers:
        """Return how many Stores each element has. Raises NotEvaluable if that is not known."""
        if memory.node not in self.store_counts:
            counts = np.zeros(memory.contents.size, np.int64)
            for p in self.evaluation.text.list_stores(memory.node):
                found = self._find_elements(memory, p.node, np.zeros((1,) * self.evaluation.rank, np.int64))
                if found is None:
                    raise NotEvaluable("the position of a Store is a value of memory")
                counts[np.unique(found[0])] += 1
            self.store_counts[memory.node] = counts
        return self.store_counts[memory.node]


def is_sequential(loop: UOp) -> bool:
    """Return False for lanes and workgroups: what they exchange is ordered by Barriers, or refuted as a race (R55)."""
    return loop.arg.type not in GRID | WORKGROUP
