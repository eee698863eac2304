"""Training: parameters of a model, and the optimizers SGD, Adam and AdamW.

An optimizer marks its parameters with `requires_grad`. `step` reads their `grad` and computes all new values by one program. A
parameter stays the same Tensor and gets the new value as data, so its history does not grow.
"""

from __future__ import annotations

import dataclasses
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Set
from typing import Any

import numpy as np

from uops.compiler.tensor.faults import fault, format_for_error, to_list_or_raise
from uops.compiler.tensor.tensor import Tensor
from uops.compiler.tensor.trace import collect_tensors_with_repeats
from uops.spec.errors import SpecTypeError, SpecValueError

__all__ = ["SGD", "Adam", "AdamW", "Optimizer", "parameters"]


def parameters(model: Any) -> list[Tensor]:
    """Return the Tensors of floats in a model, each once: a container, a dataclass, or an object with such attributes.

    A container is a mapping, of which the values count, a list, a tuple, a deque or a set. The `__slots__` of a class that is no
    dataclass are no attributes here.
    """
    found: dict[int, Tensor] = {}
    seen: set[int] = set()

    def collect_float_tensors(value: Any) -> None:
        if id(value) in seen:
            return
        seen.add(id(value))
        if isinstance(value, Tensor):
            if value.dtype.is_float:
                found[id(value)] = value
        elif isinstance(value, Mapping):
            for v in value.values():
                collect_float_tensors(v)
        elif isinstance(value, (list, tuple, deque, Set)):
            for v in value:
                collect_float_tensors(v)
        elif dataclasses.is_dataclass(value) and not isinstance(value, type):
            for f in dataclasses.fields(value):
                collect_float_tensors(getattr(value, f.name))
        elif hasattr(value, "__dict__") and not callable(getattr(value, "__get__", None)):
            for v in vars(value).values():
                collect_float_tensors(v)

    collect_float_tensors(model)
    return list(found.values())


class Optimizer(ABC):
    """A rule that moves parameters against their gradients.

    Subclasses give the new value of one parameter. What lives from step to step are Tensors in `state`, one list per parameter.
    """

    def __init__(self, params: Iterable[Tensor], lr: float) -> None:
        """Take the parameters and the learning rate.

        Raises SpecTypeError for what is no Tensor of floats, and SpecValueError for no parameters or a rate that is no positive
        number.
        """
        self.params = list(params)
        if not self.params:
            raise SpecValueError(f"{type(self).__name__}: expected at least one parameter, got none")
        self.lr = self._require_number(lr, "a positive learning rate lr", lambda v: 0 < v < float("inf"))
        for p in self.params:
            if not isinstance(p, Tensor):
                raise SpecTypeError(f"{type(self).__name__}: expected Tensors as parameters, got {format_for_error(p)}")
            p._require_float("requires_grad_", p)
        for p in self.params:
            p.requires_grad_()
        self.state: list[list[Tensor]] = [self._make_state(p) for p in self.params]

    def zero_grad(self) -> None:
        """Forget the gradients, so that the next `backward` starts at zero."""
        for p in self.params:
            p.grad = None

    def step(self, *others: Any) -> None:
        """Move every parameter that has a gradient, and realize `others` (Tensors, as the loss) by the same program.

        Raises SpecValueError if no parameter has a gradient.
        """
        moved = [k for k, p in enumerate(self.params) if p.grad is not None]
        if not moved:
            raise fault("step", None, "expected a parameter with a gradient: call backward first")
        values: list[Tensor] = []
        states: list[list[Tensor]] = []
        for k in moved:
            p = self.params[k]
            assert p.grad is not None
            wide = p.dtype.wide
            value, state = self._compute_new_value_and_state(p.detach().cast(wide), p.grad.detach().cast(wide), self.state[k])
            values.append(value.cast(p.dtype).detach())
            states.append([s.detach() for s in state])
        computed = [*values, *(s for state in states for s in state)]
        computed[0].realize(*computed[1:], *collect_tensors_with_repeats(others))
        for k, value, state in zip(moved, values, states, strict=True):
            self.params[k]._set_node(value.uop)
            self.state[k] = state

    def _require_number(self, value: Any, expected: str, is_allowed: Callable[[float], bool]) -> float:
        """Return a Python or NumPy number as a float. Raises SpecValueError for one that is not allowed, and for anything else."""
        number = value.item() if isinstance(value, np.generic) else value
        if not (isinstance(number, (int, float)) and is_allowed(number)):
            raise SpecValueError(f"{type(self).__name__}: expected {expected}, got {format_for_error(value)}")
        return float(number)

    def _require_nonnegative(self, name: str, value: Any) -> float:
        """Return a finite number of at least 0 as a float. Raises SpecValueError for anything else."""
        return self._require_number(value, f"a finite {name} of at least 0", lambda v: 0 <= v < float("inf"))

    def _make_state(self, p: Tensor) -> list[Tensor]:
        """Return the first state of a parameter."""
        return []

    @abstractmethod
    def _compute_new_value_and_state(self, p: Tensor, g: Tensor, state: list[Tensor]) -> tuple[Tensor, list[Tensor]]:
        """Return the new value and the new state, from the value and the gradient in the accumulation dtype."""


class SGD(Optimizer):
    """Stochastic gradient descent: v = momentum * v + g, p = p - lr * v.

    `weight_decay` * p is added to g first; with `nesterov` the step is lr * (g + momentum * v). Source: Sutskever et al. 2013.
    """

    def __init__(
        self, params: Iterable[Tensor], lr: float, momentum: float = 0.0, weight_decay: float = 0.0, nesterov: bool = False
    ) -> None:
        """Take the parameters, the learning rate, the momentum in [0, 1), and the weight decay of at least 0.

        Raises SpecValueError for other numbers.
        """
        self.momentum = self._require_number(momentum, "a momentum in [0, 1)", lambda v: 0 <= v < 1)
        self.weight_decay, self.nesterov = self._require_nonnegative("weight_decay", weight_decay), nesterov
        super().__init__(params, lr)

    def _make_state(self, p: Tensor) -> list[Tensor]:
        return [Tensor.zeros(p.shape, dtype=p.dtype.wide)] if self.momentum else []

    def _compute_new_value_and_state(self, p: Tensor, g: Tensor, state: list[Tensor]) -> tuple[Tensor, list[Tensor]]:
        if self.weight_decay:
            g = g + self.weight_decay * p
        if not self.momentum:
            return p - self.lr * g, []
        velocity = self.momentum * state[0] + g
        return p - self.lr * (g + self.momentum * velocity if self.nesterov else velocity), [velocity]


class AdamW(Optimizer):
    """Adam with decoupled weight decay. Source: Kingma and Ba 2015; Loshchilov and Hutter 2019.

    m = b1 m + (1 - b1) g; v = b2 v + (1 - b2) g^2; p = (1 - lr * weight_decay) p - lr m' / (sqrt(v') + eps).

    At step t, m' is m / (1 - b1^t), and v' is v / (1 - b2^t).
    """

    def __init__(
        self,
        params: Iterable[Tensor],
        lr: float = 0.001,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.01,
    ) -> None:
        """Take the parameters, the learning rate, the two decay rates in [0, 1), and `eps` and the weight decay of at least 0.

        Raises SpecValueError for other numbers.
        """
        rates = to_list_or_raise(betas, "two betas")
        if len(rates) != 2:
            raise SpecValueError(f"{type(self).__name__}: expected two betas, got {format_for_error(betas)}")
        first, second = [self._require_number(rate, "betas in [0, 1)", lambda v: 0 <= v < 1) for rate in rates]
        self.betas = first, second
        self.eps, self.weight_decay = self._require_nonnegative("eps", eps), self._require_nonnegative("weight_decay", weight_decay)
        super().__init__(params, lr)

    def _make_state(self, p: Tensor) -> list[Tensor]:
        """Return both moments, and the powers of both decay rates: data, so that every step has one graph."""
        d = p.dtype.wide
        return [Tensor.zeros(p.shape, dtype=d), Tensor.zeros(p.shape, dtype=d), Tensor([1.0], dtype=d), Tensor([1.0], dtype=d)]

    def _compute_new_value_and_state(self, p: Tensor, g: Tensor, state: list[Tensor]) -> tuple[Tensor, list[Tensor]]:
        (b1, b2), (m, v, power1, power2) = self.betas, state
        power1, power2 = power1 * b1, power2 * b2
        m, v = b1 * m + (1 - b1) * g, b2 * v + (1 - b2) * g * g
        size = (v / (1 - power2).reshape(())).sqrt() + self.eps
        step = self.lr * (m / (1 - power1).reshape(())) / size
        return (p * (1 - self.lr * self.weight_decay) if self.weight_decay else p) - step, [m, v, power1, power2]


class Adam(AdamW):
    """Adam without weight decay."""

    def __init__(
        self, params: Iterable[Tensor], lr: float = 0.001, betas: tuple[float, float] = (0.9, 0.999), eps: float = 1e-8
    ) -> None:
        """Take the parameters, the learning rate, the two decay rates in [0, 1), and `eps`."""
        super().__init__(params, lr, betas, eps, 0.0)
