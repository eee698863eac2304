"""Reduces in two stages: each combines the results of parts, and the parts are all of it.

Takes: a callified body, the body after large Reduces were split, and the replacement of each node. Gives: whether every node is
kept on replaced sources, or is a Reduce in two stages. Spec: R32 (a Reduce has any order and association).
"""

from __future__ import annotations

from collections.abc import Mapping

from uops.spec.ir.node import UOp, toposort
from uops.spec.ir.ops import Op


def is_body_with_split_reduces(before: UOp, after: UOp, replacements: Mapping[UOp, UOp | tuple[UOp, ...]]) -> bool:
    """Return True if `after` is a body whose only other nodes are Reduces in two stages."""
    for u in toposort(before):
        src = tuple(_replace(s, replacements) for s in u.src)
        kept, new = u if src == u.src else u.replace(src=src), _replace(u, replacements)
        if new is not kept and not (u.op is Op.REDUCE and _is_reduce_of_parts(kept, new)):
            return False
    return _replace(before, replacements) is after


def _replace(u: UOp, replacements: Mapping[UOp, UOp | tuple[UOp, ...]]) -> UOp:
    new = replacements.get(u, u)
    return new if isinstance(new, UOp) else u


def _is_reduce_of_parts(whole: UOp, split: UOp) -> bool:
    """Return True if `split` reduces runs of one axis of a Reduce, and maybe the rest of that axis apart."""
    total, rest = split.src if split.op is whole.arg.op and len(split.src) == 2 else (split, None)
    if total.op is not Op.RESHAPE or total.operand.op is not Op.REDUCE or total.shape != whole.shape:
        return False
    outer = total.operand
    parts = outer.operand.operand if outer.operand.op is Op.CONTIGUOUS else outer.operand
    if parts.op is not Op.REDUCE or parts.operand.op is not Op.RESHAPE or len(outer.arg.axes) != 1:
        return False
    (axis,), runs, x = outer.arg.axes, parts.operand, whole.operand
    n = x.shape[axis]
    if rest is None:
        has_all = runs.operand is x
    else:
        first = runs.operand.shape[axis] if runs.operand.op is Op.SHRINK else 0
        has_all = (
            rest.op is Op.REDUCE
            and rest.arg == whole.arg
            and _are_runs_of_axis(x, axis, [(runs.operand, 0, first), (rest.operand, first, n)])
        )
    covered = runs.operand.shape
    return bool(
        has_all
        and axis in whole.arg.axes
        and outer.arg.op is parts.arg.op is whole.arg.op
        and runs.shape[:axis] == covered[:axis]
        and runs.shape[axis] * runs.shape[axis + 1] == covered[axis]
        and runs.shape[axis + 2 :] == covered[axis + 1 :]
        and sorted(parts.arg.axes) == sorted(k + (k >= axis) for k in whole.arg.axes)
    )


def _are_runs_of_axis(x: UOp, axis: int, runs: list[tuple[UOp, int, int]]) -> bool:
    """Return True if each of the values is the Shrink of `x` from one element of an axis to another."""
    for u, begin, end in runs:
        offsets = u.offsets.constants_of_stack if u.op is Op.SHRINK and u.operand is x else None
        if offsets is None or [int(o) for o in offsets] != [begin if k == axis else 0 for k in range(len(x.shape))]:
            return False
        if u.shape != tuple(end - begin if k == axis else m for k, m in enumerate(x.shape)):
            return False
    return True
