"""Derivatives: `gradient`, `backward` with `grad`, and `requires_grad`. Spec: the gradient column of the op table.

A Tensor, its reshapes and all equal expressions are one value to a derivative, as they are one node (R27: one value per node).
Realization makes a Tensor data, which has no history: no derivative flows through it. A Tensor that depends on one with
`requires_grad` keeps its history.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Self

from uops.compiler.tensor import history, storage
from uops.compiler.tensor.checks import IndexCheck, attach_unproved_checks_or_tag, checks_of
from uops.compiler.tensor.core import LazyTensorBase
from uops.compiler.tensor.faults import fault
from uops.compiler.tensor.methods.devices import DeviceMethods
from uops.compiler.tensor.realize import is_tracing
from uops.spec.errors import SpecTypeError
from uops.spec.ir import build as B
from uops.spec.ir.node import UOp
from uops.spec.ir.ops import MEMORY_ROOTS, Op
from uops.spec.ir.scope import scope_nodes
from uops.spec.rows.gradients.reverse import add_cotangents_by_node, differentiate


class GradientMethods(DeviceMethods):
    """Methods that differentiate a Tensor."""

    __slots__ = ("_grad",)

    _grad: Self | None

    @property
    def requires_grad(self) -> bool:
        """True if `backward` fills this Tensor's `grad`, and Tensors that depend on it keep their history."""
        return history.is_tracked(self)

    @requires_grad.setter
    def requires_grad(self, value: bool) -> None:
        """Set it as `requires_grad_` does."""
        self.requires_grad_(value)

    def requires_grad_(self, requires_grad: bool = True) -> Self:
        """Set `requires_grad`, and return this Tensor. Raises SpecTypeError for a dtype that is no float.

        A Tensor that depends on none with `requires_grad` yet is realized, as data of its own: equal expressions, such as two
        Tensors of zeros, are one value else.
        """
        if requires_grad:
            self._require_float("requires_grad_", self)
            if not (is_tracing() or history.has_gradient_path_to_tracked_tensor(self.uop)):
                array = self._realize_array()
                self._set_node(storage.make_leaf_and_memoize_by_realized_node(self.uop, array, is_constant=True))
        history.track_or_untrack_tensor(self, requires_grad)
        return self

    @property
    def grad(self) -> Self | None:
        """The sum of the gradients that `backward` has computed, or None. Setting it to None starts again."""
        return getattr(self, "_grad", None)

    @grad.setter
    def grad(self, value: Self | None) -> None:
        """Set it. Raises SpecTypeError for what is no Tensor of floats of this shape."""
        if value is not None:
            self._require_float("grad", self._require_tensor("grad", value))
            if value.shape != self.shape:
                raise fault("grad", None, f"expected a gradient of shape {self.shape}, got {value.shape}", SpecTypeError)
        self._grad = value

    def backward(self, gradient: Self | None = None) -> None:
        """Add the gradient of this Tensor to the `grad` of each Tensor with `requires_grad` on which it depends.

        `gradient` is the cotangent, of this shape; without it this Tensor must have one element. Nothing is computed before a
        `grad` is realized. Raises SpecTypeError for a dtype that is no float, and SpecValueError if this Tensor depends on no
        Tensor with `requires_grad`.
        """
        cotangent = self._require_cotangent_or_default_to_one("backward", gradient)
        tracked = [t for t in history.list_tracked_tensors() if isinstance(t, GradientMethods)]
        found = find_cotangents([(self.uop, cotangent)], [t.uop for t in tracked])
        if all(u is None for u in found):
            raise fault(
                "backward",
                None,
                "expected a value that depends on a Tensor with requires_grad" + _hint_if_a_value_was_realized(self.uop),
            )
        for t, u in zip(tracked, found):
            if u is not None:
                t._grad = t.of(u) if t.grad is None else t.grad + t.of(u)

    def gradient(self, *targets: Self, gradient: Self | None = None) -> list[Self]:
        """Return the gradient of this Tensor with respect to each of `targets`, of its shape and dtype; all are lazy.

        `gradient` is the cotangent, of this shape; without it this Tensor must have one element. Each target gets its total
        derivative, also where one target depends on another. Raises SpecTypeError for a dtype that is no float, and
        SpecValueError for a target on which this Tensor does not depend.
        """
        if not targets:
            raise fault("gradient", None, "expected at least one Tensor to differentiate by, got none", SpecTypeError)
        cotangent = self._require_cotangent_or_default_to_one("gradient", gradient)
        for t in targets:
            self._require_float("gradient", self._require_tensor("a target", t))
        found = find_cotangents([(self.uop, cotangent)], [t.uop for t in targets])
        nodes = list(history.walk_from_root_stopping_at_detach(self.uop))
        for k, (t, g) in enumerate(zip(targets, found)):
            self._require_whole_derivative(k, t, g, nodes)
        return [t.of(u) if u is not None else self.of(t.uop).zeros_like() for t, u in zip(targets, found)]

    def _require_whole_derivative(self, k: int, t: Self, gradient: UOp | None, nodes: Sequence[UOp]) -> None:
        """Raise SpecValueError if this value, of these nodes, does not depend on target `k`, or not by its graph alone."""
        base = history.skip_reshapes(t.uop)
        if base.op is not Op.DETACH and not any(u.op in MEMORY_ROOTS for u in scope_nodes(base)):
            detail = (
                f"target {k} is a constant, which is one value with all equal constants: realize it, or set requires_grad, first"
            )
            raise fault("gradient", None, detail)
        if base.op is Op.BUFFER and any(u is not base and storage.was_computed_from(u, base) for u in nodes if u.op is Op.BUFFER):
            detail = (
                f"expected a value that depends on target {k} by its graph alone; it uses a value that was realized, and so has"
            )
            raise fault("gradient", None, detail + " no history: set requires_grad, detach that value, or differentiate first")
        if gradient is None and not any(history.skip_reshapes(u) is base for u in nodes):
            detail = f"expected a value that depends on target {k}, of shape {t.shape}"
            raise fault("gradient", None, detail + _hint_if_a_value_was_realized(self.uop))

    def _require_cotangent_or_default_to_one(self, method: str, cotangent: Self | None) -> UOp:
        """Return the cotangent of this Tensor as a node of its dtype and shape: ones if there is none."""
        self._require_float(method, self)
        if cotangent is None:
            if self.numel() != 1:
                raise fault(method, None, f"expected one element, or a cotangent as `gradient`, got shape {self.shape}")
            return self.ones_like().uop
        if self._require_tensor("gradient", cotangent).shape != self.shape or cotangent.dtype is not self.dtype:
            wanted, got = f"{self.dtype} of shape {self.shape}", f"{cotangent.dtype} of shape {cotangent.shape}"
            raise fault(method, None, f"expected a cotangent of {wanted}, got {got}", SpecTypeError)
        return cotangent.uop

    def _require_float(self, method: str, t: LazyTensorBase) -> None:
        if not t.dtype.is_float:
            raise fault(method, None, f"expected a Tensor of floats, got {t.dtype}, which has no derivative (R78)", SpecTypeError)


def find_cotangents(values: Sequence[tuple[UOp, UOp]], targets: Sequence[UOp]) -> list[UOp | None]:
    """Return the cotangent of each target, from those of values; None for a target on which no value depends.

    A target stands for itself, for its reshapes, and for nodes whose realized value it is.
    """
    bases = [history.skip_reshapes(u) for u in targets]
    nodes_by_base: dict[UOp, list[UOp]] = {u: [u] for u in bases}
    checks: dict[IndexCheck, None] = {}
    for u in scope_nodes(B.tuple_(*(v for v, _ in values))):
        checks.update(dict.fromkeys(checks_of(u)))
        leaf = storage.find_realized_leaf(u)
        base = None if leaf is None else history.skip_reshapes(leaf)
        if base in nodes_by_base:
            nodes_by_base[base].append(history.skip_reshapes(u))
    found = differentiate(add_cotangents_by_node(values), {u for nodes in nodes_by_base.values() for u in nodes})
    result: list[UOp | None] = []
    for u, base in zip(targets, bases):
        total: UOp | None = None
        for node in dict.fromkeys(nodes_by_base[base]):
            if node in found:
                g = storage.reshape_node(found[node], u.shape)
                total = g if total is None else B.add(total, g)
        result.append(None if total is None else _attach_checks(total, tuple(checks)))
    return result


def _attach_checks(gradient: UOp, checks: tuple[IndexCheck, ...]) -> UOp:
    """Return the gradient with the IndexChecks of the value: an index out of range is an error of both.

    The gradient of an Index is a sum, in which such an index would select nothing.
    """
    return attach_unproved_checks_or_tag(UOp(Op.CONTIGUOUS_BACKWARD, (gradient,)), checks) if checks else gradient


def _hint_if_a_value_was_realized(u: UOp) -> str:
    """Return the hint that realized values have no history, if that may be why a derivative finds nothing."""
    computed = any(storage.is_computed_leaf(n) for n in scope_nodes(u))
    return (
        "; it uses a value that was realized, and so has no history: set requires_grad, or differentiate first" if computed else ""
    )
