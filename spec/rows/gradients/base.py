"""The type of a gradient rule, and the sums that rules share.

A *cotangent* of a node is the derivative of the differentiated value with respect to it: a node of its dtype and shape. That of a
Tuple, or of a Function that returns one, is a tuple with a cotangent or None for each element.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Any

from uops.spec.errors import SpecValueError
from uops.spec.ir import build as b
from uops.spec.ir.node import Dim, UOp
from uops.spec.ir.ops import Op
from uops.spec.ir.sizes import same_shape, show_shape
from uops.spec.rows.gradients.windows import sum_products_of_windows

Cotangent = UOp | tuple[UOp | None, ...]
#: A rule: (node, its cotangent, the nodes that need one) -> pairs of a node and a summand of its cotangent.
GradientRule = Callable[[UOp, Any, Set[UOp]], Iterable[tuple[UOp, Cotangent]]]


@dataclass(frozen=True, slots=True)
class Gradient:
    """The gradient of an op: the rule and its formula, or the reason why there is none.

    In a formula g is the cotangent, y the node. Without a rule, `stops` is True if the derivative is zero or does not exist.
    Otherwise a derivative exists in principle, and it is an error to ask for it.
    """

    formula: str
    rule: GradientRule | None = None
    stops: bool = True


#: (Function or Call, number -> cotangent) -> argument number -> cotangent. The numbers are those of a Function's results, and of a
#: Call's arguments: what it left there.
RegisteredRule = Callable[[UOp, Mapping[int, UOp]], Mapping[int, UOp]]
_registered: dict[str, RegisteredRule] = {}


def register_gradient(grad_tag: str, rule: RegisteredRule) -> None:
    """Make `rule` the gradient of each Function and Call whose `grad_tag` is this one (R187). The last registration counts."""
    _registered[grad_tag] = rule


def find_registered_rule(u: UOp) -> RegisteredRule | None:
    """Return the rule that is registered for the `grad_tag` of a Function or Call, or None."""
    return _registered.get(u.arg.grad_tag) if u.arg is not None and u.arg.grad_tag is not None else None


def make_gradient_summing_broadcasts(formula: str, cotangents: Callable[[UOp, UOp], Sequence[UOp | None]]) -> Gradient:
    """Return the gradient whose rule gives a cotangent, or None, for each of the first operands.

    A cotangent of the shape that an operand is broadcast to is summed over the axes of the broadcast.
    """

    def rule(u: UOp, g: UOp, needed: Set[UOp]) -> Iterator[tuple[UOp, Cotangent]]:
        for s, c in zip(u.src, cotangents(u, g)):
            if c is not None and s in needed:
                yield s, sum_to_shape(c, s.shape)

    return Gradient(formula, rule)


def sum_to_shape(g: UOp, shape: Sequence[Dim]) -> UOp:
    """Sum `g` over the axes along which a value of `shape` is broadcast to it."""
    shape = tuple(shape)
    if same_shape(g.shape, shape):
        return g
    first = len(g.shape) - len(shape)
    repeated = [first + k for k, (old, new) in enumerate(zip(shape, g.shape[first:])) if not same_shape((old,), (new,))]
    return reshape_if_needed(sum_axes(g, (*range(first), *repeated)), shape)


def reshape_if_needed(g: UOp, shape: Sequence[Dim]) -> UOp:
    """Return `g` in a shape, without a Reshape if it has it."""
    return g if same_shape(g.shape, tuple(shape)) else b.reshape(g, shape)


def sum_axes(g: UOp, axes: Iterable[int]) -> UOp:
    """Sum over `axes`, which become 1. A sum of narrow floats is accumulated in float32 and rounded once (R185)."""
    axes = tuple(axes)
    if not axes:
        return g
    of_windows = sum_products_of_windows(g, axes)
    return b.cast(b.reduce(b.cast(g, g.dtype.wide), Op.ADD, axes), g.dtype) if of_windows is None else of_windows


def require_constant_extents(shape: Iterable[Dim], what: str) -> tuple[int, ...]:
    """Return the extents as ints. Raises SpecValueError if one is symbolic."""
    extents = tuple(shape)
    if not all(isinstance(n, int) for n in extents):
        raise SpecValueError(f"the gradient of {what} needs constant extents, got {show_shape(extents)}")
    return tuple(n for n in extents if isinstance(n, int))
