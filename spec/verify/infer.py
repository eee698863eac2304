"""The dialect of a graph for which neither its file nor its caller says it, by the forms that are present."""

from __future__ import annotations

from weakref import WeakKeyDictionary

from uops.spec.ir.node import UOp, toposort
from uops.spec.ir.ops import KERNEL_FORMS, Op
from uops.spec.ir.scope import is_private_buffer, scope_nodes
from uops.spec.verify.dialects import BESTIARY_ONLY_OPS, BESTIARY_OPS, EXPANDED_OPS, PROGRAM_OPS, TENSOR_OPS, WRITTEN_OPS, Dialect

#: Ops that kernels and launches have, but no tensor graph outside of its Calls.
_KERNEL_ONLY_OPS = (EXPANDED_OPS | PROGRAM_OPS) - TENSOR_OPS
_NO_TENSOR_OPS = _KERNEL_ONLY_OPS | BESTIARY_ONLY_OPS
#: Ops of the second document that kernels have, too: alone they tell nothing where a graph has ops that only the first one has.
_ALSO_OF_KERNELS = BESTIARY_ONLY_OPS & WRITTEN_OPS
_inferred: WeakKeyDictionary[UOp, Dialect] = WeakKeyDictionary()
_is_kernel_body: WeakKeyDictionary[UOp, bool] = WeakKeyDictionary()


def infer_tensor_kernel_or_bestiary_dialect(root: UOp) -> Dialect:
    """Return the dialect by which to read a graph: BESTIARY, KERNEL or TENSOR. Memoized per root.

    A graph with an op that only the second document has is BESTIARY; CUSTOMI says so only where no op is of the first alone.
    KERNEL stands for all dialects of kernels: the root is a Sink with a name, or an op or Buffer outside of Calls is one that only
    kernels have. Any other graph is TENSOR.
    """
    dialect = _inferred.get(root)
    if dialect is None:
        dialect = _inferred[root] = _infer_tensor_kernel_or_bestiary_uncached(root)
    return dialect


def is_kernel_or_custom_function_body(body: UOp) -> bool:
    """Return True if nothing may be inlined from the body of a Call: it is a kernel or a CustomFunction (R166).

    A kernel has a kernel's root, or contains loops, ops or Buffers that only kernels have. Memoized.
    """
    answer = _is_kernel_body.get(body)
    if answer is None:
        is_kernel_root = body.op is Op.CUSTOM_FUNCTION or body.op in KERNEL_FORMS or _is_named_sink(body)
        answer = is_kernel_root or any(u.op in KERNEL_FORMS or is_private_buffer(u) for u in scope_nodes(body))
        _is_kernel_body[body] = answer
    return answer


def _infer_tensor_kernel_or_bestiary_uncached(root: UOp) -> Dialect:
    nodes = toposort(root)  # bodies included
    ops = {u.op for u in nodes}
    if ops.isdisjoint(_NO_TENSOR_OPS) and not (Op.BUFFER in ops and any(map(is_private_buffer, nodes))):
        return Dialect.KERNEL if _is_named_sink(root) else Dialect.TENSOR
    second = ops & BESTIARY_ONLY_OPS
    if second - _ALSO_OF_KERNELS or (second and ops <= BESTIARY_OPS):
        return Dialect.BESTIARY
    if _is_named_sink(root) or any(u.op in _KERNEL_ONLY_OPS or is_private_buffer(u) for u in scope_nodes(root)):
        return Dialect.KERNEL
    return Dialect.TENSOR


def _is_named_sink(root: UOp) -> bool:
    return root.op is Op.SINK and root.arg is not None
