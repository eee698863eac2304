"""Values with a gradient of their own: their steps have derivatives that overflow, cancel or jump where that of the value does not.

Each is a Function whose `grad_tag` names a rule (R187, gradients of Calls). It is inlined when it is compiled.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

from uops.compiler.tensor.methods.remainder import float_floor_divide
from uops.compiler.tensor.storage import make_param_like
from uops.spec.ir import build as B
from uops.spec.ir.args import CallArg
from uops.spec.ir.node import UOp
from uops.spec.rows.gradients.base import register_gradient

SIGMOID, TANH, LOG1P, SOFTPLUS, MOD = "sigmoid", "tanh", "log1p", "softplus", "floor mod"


def call_with_gradient(grad_tag: str, build: Callable[..., UOp], *operands: UOp) -> UOp:
    """Return build(*operands), whose gradient is the rule that is registered for `grad_tag`."""
    params = [make_param_like(k, u) for k, u in enumerate(operands)]
    node = B.function(B.tuple_(build(*params)), *operands)
    return B.get(node.replace(arg=CallArg(grad_tag=grad_tag)), 0)


def build_sigmoid(x: UOp) -> UOp:
    """Build 1 / (1 + exp(-x)) with its own gradient."""
    return call_with_gradient(SIGMOID, lambda p: B.recip(B.add(B.exp2(B.mul(B.neg(p), math.log2(math.e))), 1.0)), x)


def _register_unary_gradient(grad_tag: str, derivative_by_value_and_operand: Callable[[UOp, UOp], UOp]) -> None:
    """Register the rule g * derivative(value, operand)."""

    def rule(u: UOp, g: Mapping[int, UOp]) -> Mapping[int, UOp]:
        (x,) = u.arguments
        return {0: B.mul(g[0], derivative_by_value_and_operand(B.get(u, 0), x))}

    register_gradient(grad_tag, rule)


def _differentiate_mod(u: UOp, g: Mapping[int, UOp]) -> Mapping[int, UOp]:
    """Differentiate a - b floor(a / b): g; -g floor(a / b)."""
    a, divisor = u.arguments
    return {0: g[0], 1: B.neg(B.mul(g[0], float_floor_divide(a, divisor)))}


_register_unary_gradient(SIGMOID, lambda y, x: B.mul(y, B.sub(1.0, y)))
_register_unary_gradient(TANH, lambda y, x: B.sub(1.0, B.mul(y, y)))
_register_unary_gradient(LOG1P, lambda y, x: B.recip(B.add(x, 1.0)))
_register_unary_gradient(SOFTPLUS, lambda y, x: build_sigmoid(x))
register_gradient(MOD, _differentiate_mod)
