"""Gradients as users ask for them: methods, transforms, history, and errors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import uops
from uops import Tensor
from uops.spec.errors import SpecError, SpecTypeError, SpecValueError

RNG = np.random.default_rng(3)
ROWS = np.array([0, 2, 2, 1, -1], np.int32)


def normal(*shape: int) -> Any:
    return RNG.standard_normal(shape)


def _assign_rows(a: Tensor, v: Tensor) -> Tensor:
    t = a * 1
    t[Tensor(ROWS)] = v
    return t * t


def _assign_steps(a: Tensor, v: Tensor) -> Tensor:
    t = a * 1
    t[::2, 1] = v
    return t * t


@uops.function
def pair(a: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
    return a * v + a.sin(), (a @ v.T).sum()


@uops.function(precompile=True)
def opaque(a: Tensor, v: Tensor) -> Tensor:
    return a * v + a.sin()


# fmt: off
PROGRAMS: dict[str, tuple[Callable[..., Tensor], list[tuple[int, ...]]]] = {
    "broadcast":      (lambda a, v: a * v - a / (v * v + 1), [(3, 4), (4,)]),
    "matmul, relu":   (lambda a, v: (a @ v).relu(), [(2, 3, 4), (2, 4, 5)]),
    "softmax loss":   (lambda a: -a.log_softmax()[:, 1], [(3, 4)]),
    "layernorm gelu": (lambda a, w: (a.layernorm() * w).gelu(), [(3, 8), (8,)]),
    "attention":      (lambda q, k, v: q.scaled_dot_product_attention(k, v), [(2, 5, 4), (2, 5, 4), (2, 5, 4)]),
    "conv, pool":     (lambda a, w: a.conv2d(w).max_pool2d((2, 2)), [(2, 3, 6, 6), (4, 3, 3, 3)]),
    "prod":           (lambda a: a.prod((0, 2)), [(3, 2, 4)]),
    "cat, flip":      (lambda a, v: a.cat(v, dim=1).flip(1).roll(2, 1), [(3, 4), (3, 2)]),
    "cumsum":         (lambda a: a.cumsum(1), [(3, 6)]),
    "slices":         (lambda a: a[::-2, 1:6:2], [(5, 7)]),
    "rows by data":   (lambda a: a[Tensor(ROWS)] * a[:, Tensor(ROWS)].sum(), [(3, 4)]),
    "assign rows":    (_assign_rows, [(3, 4), (5, 4)]),
    "assign steps":   (_assign_steps, [(5, 3), (3,)]),
    "function":       (lambda a, v: pair(a, v)[0] + pair(a, v)[1], [(3, 4), (3, 4)]),
    "precompiled":    (lambda a, v: opaque(a, v) * a, [(3, 4), (3, 4)]),
    "deviation":      (lambda a: a.std(1) + a.min(), [(3, 4)]),
}
# fmt: on


@pytest.mark.parametrize("backend", ["llvm", "interp"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_gradients_agree_with_differences(name: str, backend: str) -> None:
    f, shapes = PROGRAMS[name]
    arrays = [normal(*s) for s in shapes]
    tensors = [Tensor(a) for a in arrays]
    weights = normal(*f(*tensors).shape)

    def loss(*values: Any) -> float:
        return float((f(*[Tensor(v) for v in values]).numpy() * weights).sum())

    with uops.use(backend):
        gradients = f(*tensors).gradient(*tensors, gradient=Tensor(weights))
        for k, (a, g) in enumerate(zip(arrays, gradients, strict=True)):
            direction, step = normal(*a.shape), 1e-6
            moved = [[x + s * direction if j == k else x for j, x in enumerate(arrays)] for s in (step, -step)]
            np.testing.assert_allclose((g.numpy() * direction).sum(), (loss(*moved[0]) - loss(*moved[1])) / (2 * step), rtol=2e-6)


def cubes(x: Tensor) -> Tensor:
    return (x * x * x).sum()


def test_second_derivatives() -> None:
    x = Tensor(normal(4))
    second = uops.grad(lambda y: uops.grad(cubes)(y).sum())(x)
    np.testing.assert_allclose(second.numpy(), 6 * x.numpy(), rtol=1e-12)


def test_a_captured_tensor_is_a_constant_even_if_it_is_the_argument() -> None:
    x = Tensor(normal(4))
    np.testing.assert_array_equal(uops.grad(lambda y: (y * x).sum())(x).numpy(), x.numpy())
    np.testing.assert_array_equal((x * x).sum().gradient(x)[0].numpy(), 2 * x.numpy())


def test_containers_keep_their_form() -> None:
    params = {"w": Tensor(normal(3, 2)), "b": [Tensor(normal(2)), 3]}
    x = Tensor(normal(5, 3))

    def loss(given: Any, data: Tensor) -> tuple[Tensor, Tensor]:
        out = data @ given["w"] + given["b"][0] * given["b"][1]
        return out.square().mean(), out

    (value, out), gradient = uops.value_and_grad(loss, has_aux=True)(params, x)
    assert out.shape == (5, 2) and value.shape == ()
    assert gradient["w"].shape == (3, 2) and gradient["b"][0].shape == (2,) and gradient["b"][1] == 3
    both = uops.grad(lambda a, c: (a * c).sum(), argnums=(0, 1))(x, x + 1)
    np.testing.assert_array_equal(both[1].numpy(), x.numpy())


def test_a_function_can_look_at_values() -> None:
    def f(x: Tensor) -> Tensor:
        return x.sum() * (2 if x.sum().item() > 0 else 3)

    assert uops.grad(f)(Tensor([1.0, 2.0])).tolist() == [2, 2]
    assert uops.grad(f)(Tensor([-1.0, -2.0])).tolist() == [3, 3]


def test_vjp_takes_cotangents_like_the_value() -> None:
    a, c = Tensor(normal(2, 3)), Tensor(normal(3, 2))
    value, pull_back = uops.vjp(lambda x, y: {"product": x @ y, "sum": x.sum()}, a, c)
    g = {"product": Tensor(normal(2, 2)), "sum": Tensor(2.0, dtype="float64")}
    by_a, by_c = pull_back(g)
    np.testing.assert_allclose(by_a.numpy(), g["product"].numpy() @ c.numpy().T + 2, rtol=1e-12)
    np.testing.assert_allclose(by_c.numpy(), a.numpy().T @ g["product"].numpy(), rtol=1e-12)
    np.testing.assert_allclose(value["sum"].item(), a.numpy().sum())
    with pytest.raises(SpecTypeError, match="expected cotangents"):
        pull_back({"product": g["sum"], "sum": g["sum"]})


def test_backward_fills_and_adds_up_grad() -> None:
    w, x = Tensor(normal(3, 2)).requires_grad_(), Tensor(normal(4, 3))
    unused = Tensor(normal(2)).requires_grad_()
    for times in (1, 2):
        (x @ w).sum().backward()
        assert w.grad is not None
        np.testing.assert_allclose(w.grad.numpy(), times * x.numpy().sum(0)[:, None] * np.ones(2), rtol=1e-12)
    assert unused.grad is None and x.grad is None
    w.grad = None
    assert w.grad is None
    w.requires_grad = False
    with pytest.raises(SpecValueError, match="requires_grad"):
        (x @ w).sum().backward()


def test_what_depends_on_a_tracked_tensor_keeps_its_history() -> None:
    w = Tensor(normal(3)).requires_grad_()
    h = (w * w).realize()
    assert h.is_realized
    loss = (h * h).sum()
    loss.item()
    loss.backward()
    assert w.grad is not None
    np.testing.assert_allclose(w.grad.numpy(), 4 * w.numpy() ** 3, rtol=1e-12)
    w.assign((w - w.grad).detach()).realize()
    assert w.uop is not h.uop and w.requires_grad


def test_a_target_that_was_realized_after_its_use_is_found() -> None:
    x = Tensor(normal(3))
    middle = x * 2
    y = (middle * middle).sum()
    middle.realize()
    np.testing.assert_allclose(y.gradient(middle)[0].numpy(), 2 * middle.numpy())


def test_a_reshaped_target_is_the_same_value() -> None:
    x = Tensor(normal(2, 3))
    np.testing.assert_array_equal((x.reshape(6) * 3).sum().gradient(x)[0].numpy(), np.full((2, 3), 3.0))


def test_an_index_out_of_range_is_an_error_of_the_gradient() -> None:
    x, rows = Tensor(normal(3, 2)), Tensor(np.array([0, 3], np.int32)) * 1
    (g,) = x[rows].sum().gradient(x)
    with pytest.raises(IndexError, match="index 3 is out of range"):
        g.numpy()
    with pytest.raises(IndexError, match="index 3 is out of range"):
        uops.grad(lambda t: t[rows].sum())(x).numpy()


TWO = ("CPU:0", "CPU:1")
#: What is computed, and on which axis each operand is sharded: None for a copy on each device.
SHARDED: dict[str, tuple[Callable[..., Tensor], list[tuple[int, ...]], list[int | None]]] = {
    "rows of the data": (lambda a, w: (a @ w).square().sum(), [(4, 6), (6, 2)], [0, None]),
    "the inner extent": (lambda a, w: (a @ w).square().sum(), [(4, 6), (6, 2)], [1, 0]),
    "elementwise": (lambda a, v: (a * v.sin()).sum(), [(4, 6), (4, 6)], [0, 0]),
    "softmax of rows": (lambda a: (a.softmax() * a).sum(), [(4, 6)], [0]),
    "softmax across devices": (lambda a: (a.softmax() * a).sum(), [(4, 6)], [1]),
    "slices": (lambda a: a[:, 1:3].square().sum(), [(4, 6)], [0]),
}


@pytest.mark.parametrize("name", SHARDED)
def test_gradients_on_several_devices(name: str) -> None:
    """The gradient is placed as its target is; that of what was sharded is whole."""
    f, shapes, axes = SHARDED[name]
    arrays = [normal(*s) for s in shapes]
    whole = [Tensor(a) for a in arrays]
    expected = [g.numpy() for g in f(*whole).gradient(*whole)]
    placed = [t.shard(TWO, axis) for t, axis in zip(whole, axes, strict=True)]
    for t, g, e in zip(placed, f(*placed).gradient(*placed), expected, strict=True):
        assert (g.device, g.sharded_axis) == (t.device, t.sharded_axis)
        np.testing.assert_allclose(g.numpy(), e, rtol=1e-9)
    for g, e in zip(f(*placed).gradient(*whole), expected, strict=True):
        assert g.sharded_axis is None
        np.testing.assert_allclose(g.numpy(), e, rtol=1e-9)


def test_gradients_inside_of_a_function() -> None:
    @uops.function
    def step(w: Tensor, x: Tensor) -> Tensor:
        return w - 0.1 * (x @ w).square().sum().gradient(w)[0]

    w, x = Tensor(normal(3, 2)), Tensor(normal(4, 3))
    np.testing.assert_allclose(step(w, x).numpy(), w.numpy() - 0.2 * x.numpy().T @ (x.numpy() @ w.numpy()), rtol=1e-12)


REFUSED: dict[str, tuple[Callable[[], Any], type[SpecError], str]] = {
    "an integer": (lambda: Tensor([1, 2]).sum().gradient(Tensor([1.0])), SpecTypeError, "expected a Tensor of floats, got int32"),
    "an integer target": (
        lambda: Tensor([1.0]).sum().gradient(Tensor([1])),
        SpecTypeError,
        "expected a Tensor of floats, got int32",
    ),
    "no target": (lambda: Tensor([1.0]).sum().gradient(), SpecTypeError, "at least one Tensor"),
    "several elements": (lambda: Tensor([1.0, 2.0]).gradient(Tensor([1.0])), SpecValueError, "one element or a cotangent"),
    "another value": (lambda: Tensor([1.0]).sum().gradient(Tensor([2.0])), SpecValueError, "depends on target 0, of shape"),
    "a cotangent of another shape": (
        lambda: Tensor([1.0, 2.0]).gradient(Tensor([1.0]), gradient=Tensor([1.0])),
        SpecTypeError,
        r"expected a cotangent of float32 of shape \(2,\)",
    ),
    "an integer parameter": (lambda: Tensor([1]).requires_grad_(), SpecTypeError, "expected a Tensor of floats"),
    "a function of several elements": (lambda: uops.grad(lambda x: x * 2)(Tensor([1.0, 2.0])), SpecTypeError, "one element"),
    "a function of an integer": (lambda: uops.grad(lambda x: Tensor([1]))(Tensor([1.0])), SpecTypeError, "int32"),
    "an argument that is not there": (lambda: uops.grad(cubes, argnums=2)(Tensor([1.0])), SpecValueError, "argnums"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_a_wrong_use_is_one_clear_error(what: str) -> None:
    use, error, message = REFUSED[what]
    with pytest.raises(error, match=message):
        use()


def test_a_realized_value_without_history_is_named() -> None:
    w = Tensor(normal(3))
    h = (w * w).realize()
    with pytest.raises(SpecValueError, match="realized, and so has no history"):
        h.sum().gradient(w)
