"""Optimizers against their formulas in NumPy, and what they hold from step to step."""

from __future__ import annotations

import collections
import dataclasses
import types
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import uops
from uops import Tensor
from uops.compiler.tensor import realize
from uops.nn import SGD, Adam, AdamW, Optimizer, parameters
from uops.spec.errors import SpecError, SpecTypeError, SpecValueError

RNG = np.random.default_rng(5)
START = RNG.standard_normal((3, 4))
DATA = RNG.standard_normal((5, 3))
STEPS = 5


def gradient(w: Any) -> Any:
    """The gradient of mean((x w)^2)."""
    return 2 * DATA.T @ (DATA @ w) / 20


def sgd(momentum: float, decay: float, nesterov: bool) -> Any:
    w, v = START, np.zeros_like(START)
    for _ in range(STEPS):
        g = gradient(w) + decay * w
        v = momentum * v + g
        w = w - 0.1 * (g + momentum * v if nesterov else v)
    return w


def adam(decay: float) -> Any:
    w, m, v = START, np.zeros_like(START), np.zeros_like(START)
    for t in range(1, STEPS + 1):
        g = gradient(w)
        m, v = 0.9 * m + 0.1 * g, 0.99 * v + 0.01 * g * g
        w = w * (1 - 0.1 * decay) - 0.1 * (m / (1 - 0.9**t)) / (np.sqrt(v / (1 - 0.99**t)) + 1e-8)
    return w


# fmt: off
CASES: dict[str, tuple[Callable[[Tensor], Optimizer], Any]] = {
    "sgd":      (lambda w: SGD([w], 0.1), sgd(0, 0, False)),
    "momentum": (lambda w: SGD([w], 0.1, momentum=0.9, weight_decay=0.05), sgd(0.9, 0.05, False)),
    "nesterov": (lambda w: SGD([w], 0.1, momentum=0.9, nesterov=True), sgd(0.9, 0, True)),
    "adam":     (lambda w: Adam([w], 0.1, (0.9, 0.99)), adam(0)),
    "adamw":    (lambda w: AdamW([w], 0.1, (0.9, 0.99), weight_decay=0.2), adam(0.2)),
}
# fmt: on


def train(w: Tensor, optimizer: Optimizer, steps: int = STEPS) -> list[float]:
    x, losses = Tensor(DATA.astype(w.dtype.name) if w.dtype.name != "float64" else DATA), []
    for _ in range(steps):
        loss = (x @ w).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step(loss)
        losses.append(loss.item())
    return losses


@pytest.mark.parametrize("name", CASES)
def test_steps_follow_the_formula(name: str) -> None:
    make, expected = CASES[name]
    w = Tensor(START)
    losses = train(w, make(w))
    np.testing.assert_allclose(w.numpy(), expected, rtol=1e-10)
    assert losses == sorted(losses, reverse=True)


def test_later_steps_compile_nothing_and_keep_no_history() -> None:
    w = Tensor(START.astype(np.float32))
    optimizer = AdamW([w])
    train(w, optimizer, 2)
    before = len(realize._local.programs)
    train(w, optimizer, 3)
    assert len(realize._local.programs) == before
    assert w.is_realized and w.requires_grad and len(w.uop.src) <= 2


def test_narrow_parameters_have_wide_state() -> None:
    w = Tensor(START.astype(np.float16))
    optimizer = Adam([w], 0.05)
    train(w, optimizer)
    assert w.dtype.name == "float16"
    assert {s.dtype.name for s in optimizer.state[0]} == {"float32"}


def test_a_parameter_without_a_gradient_stays() -> None:
    w, other = Tensor(START), Tensor([1.0])
    train(w, SGD([w, other], 0.1), 1)
    assert other.tolist() == [1.0]


@dataclasses.dataclass
class Layer:
    weight: Tensor
    bias: Tensor | None = None


class Model:
    def __init__(self) -> None:
        self.layers = [Layer(Tensor([1.0]), Tensor([2.0])), Layer(Tensor([3.0]))]
        self.count, self.table = Tensor([1]), {"t": Tensor([4.0])}
        self.again, self.me = self.layers[0].weight, self


def test_parameters_are_the_floats_of_a_model_each_once() -> None:
    assert [p.item() for p in parameters(Model())] == [1, 2, 3, 4]


def test_parameters_are_found_in_every_container_of_the_standard_library() -> None:
    a, b, c = Tensor([1.0]), Tensor([2.0]), Tensor([3.0])
    found = parameters([collections.deque([a]), frozenset([b]), types.MappingProxyType({"c": c})])
    assert [p.item() for p in found] == [1, 2, 3]


def test_a_refused_optimizer_marks_no_parameter() -> None:
    w = Tensor([1.0])
    for other in (Tensor([1]), np.ones(1)):
        with pytest.raises(SpecTypeError):
            SGD([w, other], 0.1)  # type: ignore[list-item]
        assert not w.requires_grad


def test_numbers_of_numpy_are_rates() -> None:
    assert SGD([Tensor([1.0])], np.float32(0.5), np.float32(0.5)).lr == 0.5  # type: ignore[arg-type]
    assert Adam([Tensor([1.0])], betas=[np.float32(0.5), 0]).betas == (0.5, 0.0)  # type: ignore[arg-type]


ONE = Tensor([1.0])
REFUSED: dict[str, tuple[Callable[[], Any], type[SpecError], str]] = {
    "no parameters": (lambda: SGD([], 0.1), SpecValueError, "at least one parameter"),
    "an integer": (lambda: SGD([Tensor([1])], 0.1), SpecTypeError, "expected a Tensor of floats"),
    "no Tensor": (lambda: Adam([np.ones(2)]), SpecTypeError, "expected Tensors as parameters"),  # type: ignore[list-item]
    "a rate": (lambda: SGD([Tensor([1.0])], float("nan")), SpecValueError, "positive learning rate lr, got nan"),
    "a decay rate": (lambda: Adam([Tensor([1.0])], betas=(1.0, 0.9)), SpecValueError, "betas"),
    "one decay rate": (lambda: AdamW([ONE], betas=(0.9,)), SpecValueError, "expected two betas"),  # type: ignore[arg-type]
    "three decay rates": (lambda: AdamW([ONE], betas=(0.9, 0.9, 0.9)), SpecValueError, "two betas"),  # type: ignore[arg-type]
    "no decay rates": (lambda: AdamW([ONE], betas=0.9), SpecTypeError, "expected a sequence of"),  # type: ignore[arg-type]
    "a rate in words": (lambda: SGD([ONE], "0.1"), SpecValueError, "learning rate lr, got '0.1'"),  # type: ignore[arg-type]
    "a momentum": (lambda: SGD([ONE], 0.1, momentum=-3.0), SpecValueError, r"expected a momentum in \[0, 1\), got -3.0"),
    "a weight decay": (lambda: SGD([ONE], 0.1, weight_decay=float("nan")), SpecValueError, "weight_decay of at least 0, got nan"),
    "a decay of Adam": (lambda: AdamW([ONE], weight_decay=-1.0), SpecValueError, "weight_decay of at least 0, got -1.0"),
    "an eps": (lambda: Adam([ONE], eps=float("inf")), SpecValueError, "eps of at least 0, got inf"),
    "no gradient": (lambda: SGD([Tensor([1.0])], 0.1).step(), SpecValueError, "call backward first"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_a_wrong_use_is_one_clear_error(what: str) -> None:
    use, error, message = REFUSED[what]
    with pytest.raises(error, match=message):
        use()


def test_a_jitted_call_reads_the_new_value_of_a_parameter() -> None:
    jitted = uops.jit(lambda x: x * 2)
    w = Tensor(np.array([1, 2], np.float32))
    optimizer = SGD([w], lr=0.5)
    (w * w).sum().backward()
    w.requires_grad_(False)
    assert jitted(w).tolist() == [2, 4]
    optimizer.step()
    assert jitted(w).tolist() == [0, 0]
