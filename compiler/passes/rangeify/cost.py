"""Cost model of realisation: whether a value is computed once into memory, or wherever it is used.

A value without a Buffer is computed in the innermost loop that its index depends on, once per iteration of the loops around it. A
KernelDraft knows the loops around each of its loops, hence how often an element is computed. The model counts arithmetic, reads and
writes per element, in units of one simple vector operation. It compares two choices. One computes the value at every reference. The
other computes it once, writes it, and reads it back.

A float sum or product is never computed at two references, because schedules may differ there and one node has one value (R27, one
node, one value). A kernel takes in at most one sum of products whose operands are reused, since its loops are chosen for that sum.
It takes it in only outside the loops of other Reduces. Nor does a Reduce take in prefix sums, which become scans in kernels of
their own.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence

from uops.compiler.ir.work import READ_COST, RemainingReduce, estimate_work_per_element, size
from uops.compiler.passes.rangeify.elements import ClosedReduce
from uops.compiler.passes.rangeify.kernels import ElementRef
from uops.compiler.passes.rangeify.layouts import BIJECTIVE
from uops.compiler.rewrite.costs import COSTS
from uops.compiler.target import PLAIN, MachineModel
from uops.spec.ir.node import UOp, collect_users, nodes_with_op
from uops.spec.ir.ops import ALU, Op
from uops.spec.ir.scope import VIEWS

#: Cost of writing one element to memory.
WRITE_COST = 4
#: Greatest work per element of a value that may be computed twice in one kernel; a schedule may still keep it in LOCAL memory.
STAGED_COST = 48
#: Most references at which one value is computed.
_MAX_REFS = 8
#: Elements of a window from which overlapping windows are better reduced by a scan.
_WINDOW = 64
#: Uses per operand element from which a sum of products is a contraction.
_REUSE = 4
#: Elements of an epilogue per element of its sum from which readers repeat cheap arithmetic.
_REPEATED_SUM = 16
#: Most nodes of an epilogue that are searched for its sum.
_MAX_EPILOGUE = 64


class RealiseCostModel:
    """Costs and properties of the values of one body, most of them computed on demand."""

    def __init__(self, order: Sequence[UOp], closed_reduces: Mapping[UOp, ClosedReduce], machine: MachineModel = PLAIN) -> None:
        self.order, self.closed_reduces, self.kernel_cost = order, closed_reduces, machine.thresholds.kernel_cost
        self.tensor_core_casts = {(c.dtype_in, c.dtype_out) for c in machine.tensor_cores}
        self.noncontraction_values = self._find_noncontraction_reduces_and_epilogues(order)

    @functools.cached_property
    def users(self) -> dict[UOp, list[UOp]]:
        """Users of each value, one entry per use."""
        return collect_users(self.order)

    @functools.cached_property
    def use_counts(self) -> dict[UOp, int]:
        """Number of uses of each value."""
        return {u: len(users) for u, users in self.users.items()}

    @functools.cached_property
    def work_per_element(self) -> dict[UOp, int]:
        """Work of one element of each value. A body in which no element is needed twice never reads it."""
        remaining = {
            u: RemainingReduce([leaf.node for leaf in form.leaves.values()], form.remaining_loops)
            for u, form in self.closed_reduces.items()
        }
        return estimate_work_per_element(self.order, remaining, self.use_counts)

    def needs_reduce_loop(self, u: UOp) -> bool:
        """Return True if `u` is a Reduce that needs loops of its own."""
        return u.op is Op.REDUCE and not (u in self.closed_reduces and not self.closed_reduces[u].remaining_loops)

    def _find_noncontraction_reduces_and_epilogues(self, order: Sequence[UOp]) -> set[UOp]:
        """Return the Reduces that are no contractions, and the results of elementwise ops and views of one of them."""
        reduces: set[UOp] = set()
        for u in order if nodes_with_op(order[-1], Op.REDUCE) else ():
            if u.op is Op.REDUCE:
                if self.needs_reduce_loop(u) and not self.is_contraction_with_operand_reuse(u):
                    reduces.add(u)
            elif (u.op in ALU or u.op in BIJECTIVE) and any(s in reduces and size(s) == size(u) for s in u.src):
                reduces.add(u)
        return reduces

    def is_duplicable(self, u: UOp) -> bool:
        """Return True if every kernel that computes `u` gets the same bits."""
        return u.op is not Op.REDUCE or not self.needs_reduce_loop(u) or u.arg.op is Op.MAX or not u.dtype.is_float

    def is_contraction_with_operand_reuse(self, u: UOp) -> bool:
        """Return True if `u` sums products whose operands are reused for many elements: a matrix product or a convolution."""
        if u.op is not Op.REDUCE or u.arg.op is not Op.ADD or not self.needs_reduce_loop(u):
            return False
        product = u.operand
        while product.op is Op.CAST:
            product = product.operand
        return product.op is Op.MUL and size(product) >= _REUSE * max(size(_strip_movement_and_casts(s)) for s in product.src)

    def reduces_wide_sliding_windows(self, u: UOp) -> bool:
        """Return True if `u` reduces windows of 64 elements or more, at half as many places as their source has elements, or more.

        In a kernel of its own that becomes a scan, inside another Reduce it does not (`optimize.heuristics.scan`).
        """
        windows, is_cut = u.operand, False
        while windows.op in VIEWS or windows.op in (Op.CAST, Op.PAD):
            is_cut |= windows.op is Op.SHRINK
            windows = windows.src[0]  # operand, or buffer of an After
        is_wide = size(u.operand) >= _WINDOW * size(u)
        return is_wide and is_cut and windows.op is Op.EXPAND and 2 * size(u) >= size(_strip_movement_and_casts(windows))

    def should_realise_else_claim_as_kernel_contraction(
        self, u: UOp, refs: Sequence[ElementRef], one_ref_computes_each_once: bool
    ) -> bool:
        """Return True if a kernel for `u` and reads of its result are cheaper than computing `u` at each of `refs`.

        For a product whose operands are reused, False means that the kernel of the reference has claimed it.
        `one_ref_computes_each_once` says that there is one reference, at which every element is computed once.
        """
        first = refs[0]
        if u.op is Op.REDUCE and self.needs_reduce_loop(u):
            if not one_ref_computes_each_once or (
                self.is_contraction_with_operand_reuse(u) and not first.kernel.try_claim_only_product(first)
            ):
                return True
            if self.reduces_wide_sliding_windows(u) and first.is_in_reduce_loop():
                return True
        elif (u.op is Op.CAST and (u.operand.dtype, u.dtype) in self.tensor_core_casts) or one_ref_computes_each_once:
            return False  # a tensor core takes the operand
        elif len(refs) > 1 and self.is_epilogue_of_unshared_sum(u, any(r.kernel is not first.kernel for r in refs)):
            return True
        cost, elements = self.work_per_element[u], size(u)
        if len(refs) > _MAX_REFS and cost > READ_COST:
            return True
        times = sum([r.execution_count() for r in refs])
        one_kernel = all(r.kernel is first.kernel for r in refs)
        if one_kernel and times <= 3 * elements and cost <= STAGED_COST:
            return False
        return times * cost > elements * (cost + WRITE_COST) + times * READ_COST + self.kernel_cost

    def is_epilogue_of_unshared_sum(self, u: UOp, allow_smaller_sums: bool) -> bool:
        """Return True if `u` is the result of elementwise arithmetic on a sum that nothing else uses.

        A sum must not be computed twice. So if `u` is not realised, the sum is, at the same price but without the arithmetic. If
        `allow_smaller_sums` need `u`, sums that are the same for many elements count too. Otherwise each would be a kernel, and all
        readers would repeat the arithmetic. They do so if it costs less than writing its result, as in x minus the mean of a row.
        """
        cone, pending, sums, elements = {u}, [u], list[UOp](), size(u)
        while pending and len(cone) <= _MAX_EPILOGUE:
            for s in pending.pop().src:
                if s in cone or s.op is Op.CONST or not (size(s) == elements or (allow_smaller_sums and size(s) < elements)):
                    continue
                if not self.is_duplicable(s):
                    sums.append(s)
                elif s.op in ALU or s.op in BIJECTIVE or s.op is Op.EXPAND:
                    pending.append(s)
                cone.add(s)
        arithmetic = sum(COSTS[v.op].work for v in cone if v.op in ALU and size(v) == elements)
        if arithmetic <= WRITE_COST and all(_REPEATED_SUM * size(s) <= elements for s in sums):
            return False
        return any(self._all_transitive_uses_in_cone(s, u, cone) for s in sums)

    def _all_transitive_uses_in_cone(self, value: UOp, root: UOp, cone: set[UOp]) -> bool:
        """Return True if all transitive uses of `value`, up to `root`, are in the cone of `root`."""
        pending, seen = [value], {value}
        while pending:
            for user in self.users[pending.pop()]:
                if user not in cone:
                    return False
                if user is not root and user not in seen:
                    seen.add(user)
                    pending.append(user)
        return True


def _strip_movement_and_casts(u: UOp) -> UOp:
    """Return the value whose elements movement ops and casts repeat or pad."""
    while u.op in VIEWS or u.op in (Op.CAST, Op.EXPAND, Op.PAD):
        u = u.src[0]  # operand, or buffer of an After
    return u
