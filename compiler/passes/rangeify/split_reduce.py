"""Large sums in parts: a Reduce of a lot to a little is a kernel of parts, which cores share, and a kernel that combines these.

Takes and gives: the body of CALLIFIED. R32 allows any order and association. One axis of the Reduce, n = p * q, is cut into p runs
of q; where n has no such factor, what is left beside p runs is combined with them:

    Reduce(x, n)   becomes   Reduce(Contiguous(Reduce(x as (p, q), q)), p)

A Reduce that has a closed form is left alone: it may not read what it reduces. Spec: Reduce; Lowering Pipeline/Rangeify.
"""

from __future__ import annotations

import math

from uops.compiler.ir.views import Indexing
from uops.compiler.log import note
from uops.compiler.passes.rangeify.elements import closed_reduces
from uops.spec.ir import build as B
from uops.spec.ir.node import UOp, nodes_of, toposort
from uops.spec.ir.ops import Op

#: Elements from which a result is worth parts, and up to how many results a Reduce has too few for the cores.
LEAST = 1 << 19
FEW = 8
#: The most parts, and the fewest that a factor of the extent may give.
PARTS, FEWEST = 64, 32


def in_parts(body: UOp, at: Indexing) -> UOp:
    """The body with its large Reduces in parts."""
    large = {u for u in nodes_of(body, Op.REDUCE) if _is_large(u)}
    if not large:
        return body
    order = toposort(body)
    large -= closed_reduces(order, at).keys()
    done: dict[UOp, UOp] = {}
    for u in order:
        src = tuple([done[s] for s in u.src])
        new = u if src == u.src else u.replace(src=src)
        done[u] = _parts(new) if u in large else new
    note("parts", body, done[body], done)
    return done[body]


def _is_large(u: UOp) -> bool:
    shape, own = u.src[0].shape, u.arg.axes
    if not own or not all(isinstance(n, int) for n in shape) or math.prod(u.shape) > FEW:
        return False
    return math.prod(shape) >= LEAST * math.prod(u.shape) and shape[_axis(u)] >= FEWEST


def _axis(u: UOp) -> int:
    """The axis that is cut: the first one that is long enough, else the longest."""
    shape, axes = u.src[0].shape, tuple(u.arg.axes)
    found: int = next((k for k in axes if shape[k] >= PARTS), max(axes, key=lambda k: shape[k]))
    return found


def _parts(u: UOp) -> UOp:
    x, axis = u.src[0], _axis(u)
    n = int(x.shape[axis])
    p = next((p for p in range(PARTS, FEWEST - 1, -1) if n % p == 0), PARTS)
    whole = n // p * p
    found = _runs(u, _piece(x, axis, 0, whole), axis, p)
    if whole < n:
        found = UOp(u.arg.op, (found, B.reduce(_piece(x, axis, whole, n), u.arg.op, u.arg.axes)))
    return found


def _piece(x: UOp, axis: int, begin: int, end: int) -> UOp:
    """Elements begin to end of an axis."""
    if end - begin == x.shape[axis]:
        return x
    first = [begin if k == axis else 0 for k in range(len(x.shape))]
    return B.shrink(x, first, [end - begin if k == axis else n for k, n in enumerate(x.shape)])


def _runs(u: UOp, x: UOp, axis: int, p: int) -> UOp:
    """The Reduce of p runs of an axis that p divides, realised, reduced."""
    shape = (*x.shape[:axis], p, int(x.shape[axis]) // p, *x.shape[axis + 1 :])
    inner = [k + (k >= axis) for k in u.arg.axes]
    parts = B.contiguous(B.reduce(B.reshape(x, shape), u.arg.op, inner))
    return B.reshape(B.reduce(parts, u.arg.op, (axis,)), u.shape)
