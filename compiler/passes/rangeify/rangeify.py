"""Kernel split: a callified program as a launch of kernels on scalars.

Takes: CALLIFIED. Gives: KERNEL (a Linear of Calls in execution order; each body a Sink of a Store in its loops, on flat 1-D
Params). Spec: Lowering Pipeline/Rangeify; rows Movement/*, Reduce, Load, Store; R14 (Where condition), R27 (one node, one value),
R41 to R46 (operand shapes to Bitcast and Slice), R51 to R54 (references to Store).

Ranges start at the elements of each stored value and are pushed to its sources, consumers first. Movement ops are functions on
index tuples (`uops.compiler.ir.views`). A realised value is computed by a kernel of its own into a Buffer. A value is realised when
it is a copy by definition, or when that is cheaper than computing it wherever it is used (`cost`). A float sum or product is always
realised where it would be computed more often than once (R27). Kernels run in the topological order of their values.
"""

from __future__ import annotations

from collections.abc import Callable

from uops.compiler.ir.bodies import order_outside_kernels
from uops.compiler.ir.views import IndexArithmetic
from uops.compiler.log import active_log, log_transform
from uops.compiler.passes.rangeify.elementwise import EXPRESSIONS, SOURCE_ELEMENTS
from uops.compiler.passes.rangeify.kernels import KernelFinisher
from uops.compiler.passes.rangeify.split_reduce import split_large_reduces
from uops.compiler.passes.rangeify.state import OpHandlers, RangeifyState
from uops.compiler.passes.rangeify.store_targets import locate_store_target
from uops.compiler.rewrite.rewriter import Rewriter
from uops.compiler.rewrite.rules import INDEXING
from uops.compiler.target import PLAIN, MachineModel
from uops.spec.ir.node import UOp
from uops.spec.ir.ops import Op

_HANDLERS = OpHandlers(SOURCE_ELEMENTS, EXPRESSIONS, locate_store_target)


def rangeify(root: UOp, machine: MachineModel = PLAIN, simplify: Callable[[UOp], UOp] | None = None) -> UOp:
    """Split a callified program into kernels. `simplify` brings index expressions into normal form."""
    simplify = simplify or Rewriter(INDEXING)
    indexing = IndexArithmetic(simplify)
    body = split_large_reduces(root.body, indexing, machine)
    if body is not root.body:
        root = root.replace(src=(body, *root.arguments))
    state = RangeifyState(indexing, order_outside_kernels(body), root.arguments, _HANDLERS, machine)
    state.request_elements_and_open_kernels()
    state.build_expressions_and_stores()
    if active_log() is not None:
        state.log_values_computed_by_each_kernel(body, simplify if isinstance(simplify, Rewriter) else None)
    finish = KernelFinisher(state.values, state.arguments, state.buffers, simplify)
    launch = UOp(Op.LINEAR, tuple([finish(n, kernel) for n, kernel in enumerate(state.kernels_in_order())]))
    launch = state.insert_handwritten_kernel_calls(launch)
    log_transform("realise", root, launch, state.buffers)
    return launch
