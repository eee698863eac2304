"""Rangeify: the kernel split, and every kernel broken down to shape ().

Takes: CALLIFIED. Gives: KERNEL (a Linear of Calls in execution order; each body a Sink of a Store in its loops, on flat 1-D
Params). Spec: Lowering Pipeline/Rangeify; rows Movement/*, Reduce, Load, Store; R14, R27, R41 to R46, R51 to R54.

Ranges start at the elements of what is stored and are pushed to its sources, consumers first, through movement ops as functions on
index tuples (`views`). A value is realised - computed by a kernel of its own into a Buffer - when it is a copy by definition, or
when that is cheaper than computing it wherever it is wanted (`cost`); a float sum or product always, where it would be computed
more often than once (R27). Kernels run in the topological order of what they compute.
"""

from __future__ import annotations

from collections.abc import Callable

from uops.compiler.ir.views import Indexing
from uops.compiler.log import active, note
from uops.compiler.passes.rangeify.elementwise import READ, SPREAD
from uops.compiler.passes.rangeify.kernels import Finish
from uops.compiler.passes.rangeify.split_reduce import in_parts
from uops.compiler.passes.rangeify.state import Rangeify, Tables
from uops.compiler.passes.rangeify.store_targets import locate
from uops.compiler.rewrite.rewriter import Rewriter
from uops.compiler.rewrite.rules import INDEXING
from uops.spec.ir.node import UOp, toposort
from uops.spec.ir.ops import Op

_TABLES = Tables(SPREAD, READ, locate)


def rangeify(root: UOp, simplify: Callable[[UOp], UOp] | None = None) -> UOp:
    """The kernels of a callified program."""
    simplify = simplify or Rewriter(INDEXING)
    at = Indexing(simplify)
    body = in_parts(root.src[0], at)
    if body is not root.src[0]:
        root = root.replace(src=(body, *root.src[1:]))
    state = Rangeify(at, toposort(body), root.src[1:], _TABLES)
    state.spread()
    state.compute()
    if active() is not None:
        state.note(body, simplify if isinstance(simplify, Rewriter) else None)
    finish = Finish(state.values, state.arguments, state.buffers, simplify)
    launch = UOp(Op.LINEAR, tuple([finish(n, kernel) for n, kernel in enumerate(state.in_order())]))
    note("realise", root, launch, state.buffers)
    return launch
