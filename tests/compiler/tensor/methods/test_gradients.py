"""Gradients as users ask for them: methods, transforms, history, and errors."""

from __future__ import annotations

import dataclasses
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
    assert gradient["w"].shape == (3, 2) and gradient["b"][0].shape == (2,) and gradient["b"][1] is None
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


def test_the_gradient_of_a_power_of_zero_is_zero() -> None:
    x = Tensor(np.array([3.0, 0.0, np.nan, np.inf]))
    assert (x**0).tolist() == [1.0] * 4
    assert (x**0).sum().gradient(x)[0].tolist() == [0.0] * 4
    w = Tensor([3.0, 0.0]).requires_grad_()
    (w**0).sum().backward()
    assert w.grad is not None and w.grad.tolist() == [0.0, 0.0]


def test_grad_has_the_shape_of_its_tensor_and_a_float_dtype() -> None:
    w = Tensor([1.0])
    for wrong, message in (
        (Tensor([1.0, 2.0]), r"Tensor.grad: expected a gradient of shape \(1,\), got \(2,\)"),
        (Tensor([1]), "Tensor.grad: expected a Tensor of floats, got int32"),
        (np.ones(1), "Tensor"),
    ):
        with pytest.raises(SpecTypeError, match=message):
            w.grad = wrong  # type: ignore[assignment]
        assert w.grad is None
    w.grad = Tensor([2.0], dtype="float64")
    assert w.grad.item() == 2


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


def test_parameters_of_equal_values_are_distinct() -> None:
    x = Tensor([[1.0, 2.0]])
    b1, b2 = Tensor.zeros(2).requires_grad_(), Tensor.zeros(2).requires_grad_()
    ((x + b1) * 3.0 + b2).sum().backward()
    assert b1.grad is not None and b2.grad is not None
    assert b1.grad.tolist() == [3, 3] and b2.grad.tolist() == [1, 1]
    scale = Tensor(2.0).requires_grad_()
    (x * 2.0 * scale).sum().backward()
    assert scale.grad is not None and scale.grad.item() == 6


def test_a_value_that_was_realized_on_the_way_is_an_error_and_not_half_a_gradient() -> None:
    w = Tensor(normal(2))
    h = w * w
    k = h + 1
    k.tolist()
    with pytest.raises(SpecValueError, match="by its graph alone"):
        (h * k).sum().gradient(w)
    np.testing.assert_allclose((h * k.detach()).sum().gradient(w)[0].numpy(), 2 * w.numpy() * k.numpy())


def test_what_stops_a_derivative_has_a_gradient_of_zero() -> None:
    x = Tensor(normal(3))
    assert x.floor().sum().gradient(x)[0].tolist() == [0, 0, 0]


def test_nested_gradients_do_not_take_each_others_arguments() -> None:
    x = Tensor([2.0])
    assert uops.grad(lambda y: uops.grad(lambda z: (z * y).sum())(x).sum())(x).tolist() == [1]
    assert uops.value_and_grad(lambda y: uops.grad(lambda z: (z * y).sum())(x).sum())(x)[0].item() == 2


def test_values_may_be_realized_in_a_function_that_is_differentiated() -> None:
    x = Tensor([2.0])
    assert uops.grad(lambda y: (y * y).realize().sum())(x).tolist() == [4]

    def printing(y: Tensor) -> Tensor:
        h = y * y
        h.numpy()
        return (h * y).sum()

    assert uops.grad(printing)(x).tolist() == [12]


def test_constants_may_be_read_in_a_function_that_is_differentiated() -> None:
    outside = Tensor.ones(2)

    def f(x: Tensor) -> Tensor:
        return (x * outside.numpy()).sum() * Tensor.ones(3).sum().item() + x[int(Tensor(1))]

    assert uops.grad(f)(Tensor([1.0, 2.0])).tolist() == [3, 4]


def test_what_a_function_captures_is_differentiated() -> None:
    x = Tensor([2.0])

    def outer(y: Tensor) -> Tensor:
        z = y * 5
        return uops.function(lambda t: t * z)(Tensor([1.0])).sum()

    assert uops.grad(outer)(x).tolist() == [5]
    w = Tensor([3.0]).requires_grad_()
    scaled = w * 2
    uops.function(lambda t: t * scaled)(x).sum().backward()
    assert w.grad is not None and w.grad.tolist() == [4]


def test_the_last_of_equal_positions_is_the_last_one_stored() -> None:
    twice = Tensor(np.array([1, 1], np.int32))
    for view, expected in ((lambda t: t.flip(0), [0.0, 2.0]), (lambda t: t[0:1], [2.0])):
        v = Tensor(np.array([5.0, 7.0][: len(expected)]))
        z = Tensor(np.zeros(3)) * 1
        view(z[twice]).assign(v)
        assert (z * 2).sum().gradient(v)[0].tolist() == expected


# fmt: off
SATURATED: dict[str, tuple[Callable[[Tensor], Tensor], list[float], list[float]]] = {
    "sigmoid":  (lambda x: x.sigmoid(), [-200.0, -60.0, 0.0, 200.0], [0.0, np.exp(-60.0), 0.25, 0.0]),
    "silu":     (lambda x: x.silu(), [-200.0, 0.0, 200.0], [0.0, 0.5, 1.0]),
    "gelu":     (lambda x: x.gelu(), [-50.0, 0.0, 50.0], [0.0, 0.5, 1.0]),
    "softplus": (lambda x: x.softplus(), [-200.0, -20.0, 0.0, 200.0], [0.0, 1 / (1 + np.exp(20.0)), 0.5, 1.0]),
    "tanh":     (lambda x: x.tanh(), [-np.inf, 0.0, np.inf], [0.0, 1.0, 0.0]),
    "log1p":    (lambda x: x.log1p(), [0.0, 1e-20, 1.0], [1.0, 1.0, 0.5]),
    "mod":      (lambda x: x % 1.0, [2.25, 0.25, -0.5], [1.0, 1.0, 1.0]),
    "divisor":  (lambda x: Tensor([5.5, 1.0, -5.5]) % x, [2.0, 2.0, 2.0], [-2.0, 0.0, 3.0]),
}
# fmt: on


@pytest.mark.parametrize("name", SATURATED)
def test_gradients_of_saturated_values_are_finite_and_right(name: str) -> None:
    f, x, expected = SATURATED[name]
    t = Tensor(np.array(x, np.float32))
    np.testing.assert_allclose(f(t).sum().gradient(t)[0].numpy(), expected, rtol=1e-5, atol=1e-37)


def test_second_derivatives_of_values_with_a_gradient_of_their_own() -> None:
    x = Tensor(np.array([-0.5, 0.25, 2.0]))
    for f in (Tensor.sigmoid, Tensor.tanh, Tensor.softplus, Tensor.log1p, lambda t: t.cumsum().square()):
        first = uops.grad(lambda t, f=f: f(t).sum())
        second = uops.grad(lambda t, g=first: g(t).sum())(x).numpy()
        step = 1e-6
        moved = [first(x + s).numpy() for s in (step, -step)]  # of all elements at once, as the sum of a row of second derivatives
        assert np.isfinite(second).all()
        sums = (moved[0] - moved[1]) / (2 * step)
        np.testing.assert_allclose(second, sums, rtol=2e-6, atol=1e-8)


@dataclasses.dataclass
class Scaled:
    a: Tensor
    b: Tensor
    power: float = 2.0


def test_dataclasses_are_containers_and_other_values_have_no_gradient() -> None:
    given = Scaled(Tensor([1.0, 2.0]), Tensor([3.0, 4.0]))
    found = uops.grad(lambda p: (p.a * p.b).sum())(given)
    assert isinstance(found, Scaled)
    assert found.a.tolist() == [3, 4] and found.b.tolist() == [1, 2] and found.power is None


TWO = ("CPU:0", "CPU:1")


def test_a_function_of_a_sharded_value() -> None:
    square = uops.function(lambda t: t * t)
    x = Tensor(normal(4, 2))
    placed = x.shard(TWO)
    np.testing.assert_allclose(square(placed).sum().gradient(placed)[0].numpy(), 2 * x.numpy(), rtol=1e-9)


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


def test_a_reshape_of_a_tracked_tensor_keeps_its_history() -> None:
    x = Tensor(np.array([1, 2], np.float32)).requires_grad_()
    row = x.reshape(1, 2).requires_grad_()
    (row * row).sum().realize().backward()
    assert x.grad is not None and x.grad.tolist() == [2, 4]
    assert row.grad is not None and row.grad.tolist() == [[2, 4]]
    x.reshape(2, 1).realize().sum().backward()
    assert x.grad.tolist() == [3, 5]


def test_to_track_a_tensor_again_keeps_what_was_computed_from_it() -> None:
    x = Tensor(np.array([1, 2], np.float32)).requires_grad_()
    y = (x * x).sum()
    x.requires_grad_()
    y.backward()
    assert x.grad is not None and x.grad.tolist() == [2, 4]


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
    "several elements": (lambda: Tensor([1.0, 2.0]).gradient(Tensor([1.0])), SpecValueError, "one element, or a cotangent"),
    "another value": (lambda: Tensor([1.0]).sum().gradient(Tensor([2.0])), SpecValueError, "depends on target 0, of shape"),
    "a cotangent of another shape": (
        lambda: Tensor([1.0, 2.0]).gradient(Tensor([1.0]), gradient=Tensor([1.0])),
        SpecTypeError,
        r"expected a cotangent of float32 of shape \(2,\)",
    ),
    "an integer parameter": (lambda: Tensor([1]).requires_grad_(), SpecTypeError, "expected a Tensor of floats"),
    "a function of several elements": (lambda: uops.grad(lambda x: x * 2)(Tensor([1.0, 2.0])), SpecTypeError, "one element"),
    "a function of an integer": (lambda: uops.grad(lambda x: Tensor([1]))(Tensor([1.0])), SpecTypeError, "int32"),
    "a constant target": (lambda: (Tensor.ones(2) * 3).sum().gradient(Tensor.ones(2)), SpecValueError, "target 0 is a constant"),
    "an integer argument": (lambda: uops.grad(lambda a: (a * 2.0).sum())(Tensor([1])), SpecTypeError, "got int32"),
    "a number": (lambda: uops.grad(lambda a: (a * 2.0).sum())(3.0), SpecTypeError, "with Tensors of floats, got 3.0"),
    "no function": (lambda: uops.grad(Tensor([1.0])), SpecTypeError, "expected a function"),  # type: ignore[arg-type]
    "an argument that is not there": (lambda: uops.grad(cubes, argnums=2)(Tensor([1.0])), SpecValueError, "argnums"),
    "an argument twice": (lambda: uops.grad(cubes, argnums=(0, 0))(Tensor([1.0])), SpecValueError, "each argument once"),
    "an argument twice, from the end": (lambda: uops.grad(cubes, argnums=(0, -1))(Tensor([1.0])), SpecValueError, "once.*-1"),
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
