"""`jit`: calls with known structure build nothing and give what the function gives."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest

import uops
from uops import Tensor
from uops.spec.errors import SpecError, SpecTypeError, SpecValueError

RNG = np.random.default_rng(9)


class Pair(NamedTuple):
    first: Tensor
    rest: list[Tensor]


def normal(*shape: int) -> Tensor:
    return Tensor(RNG.standard_normal(shape).astype(np.float32))


def traced(f: Callable[..., Any]) -> tuple[Any, list[int]]:
    """Return the jitted function, and a list that grows by one at each tracing."""
    times: list[int] = []

    def count(*args: Any, **kwargs: Any) -> Any:
        times.append(1)
        return f(*args, **kwargs)

    return uops.jit(count), times


@pytest.mark.parametrize("backend", ["llvm", "interp"])
def test_a_structure_is_traced_once(backend: str) -> None:
    f, times = traced(lambda x, y, scale=1.0: (x + y) * scale)
    with uops.use(backend):
        for _ in range(3):
            x, y = normal(4), normal(4)
            np.testing.assert_array_equal(f(x, y).numpy(), x.numpy() + y.numpy())
        assert len(times) == 1
        f(x, y, scale=2.0)
        f(normal(5), normal(5))
        f(Tensor([1, 2]), Tensor([3, 4]))
        f(x, y)
    assert len(times) == 4


def test_containers_and_lazy_arguments() -> None:
    f, times = traced(lambda p, d: Pair(p.first * d["k"][0], [p.rest[0] + 1, p.first * d["k"][0]]))
    for _ in range(2):
        x, y, z = normal(3), normal(2), normal(3)
        got = f(Pair(x * 2, [y]), {"k": (z, "name", 3)})
        assert isinstance(got, Pair) and got.first.is_realized
        np.testing.assert_array_equal(got.first.numpy(), x.numpy() * 2 * z.numpy())
        np.testing.assert_array_equal(got.rest[0].numpy(), y.numpy() + 1)
        np.testing.assert_array_equal(got.rest[1].numpy(), got.first.numpy())
    assert len(times) == 1


class Named(Tensor):
    """A Tensor of a class of its own."""


@pytest.mark.parametrize("backend", ["llvm", "interp"])
def test_an_argument_may_be_of_a_subclass_of_tensor(backend: str) -> None:
    f, times = traced(lambda x, d: x + d["y"] + 1)
    with uops.use(backend):
        for kind in (Named, Named, Tensor, Named):
            x, y = kind(RNG.standard_normal(3).astype(np.float32)), kind([1.0, 2.0, 3.0])
            np.testing.assert_array_equal(f(x, {"y": y}).numpy(), x.numpy() + y.numpy() + 1)
    assert len(times) == 1


def test_arguments_of_any_shape() -> None:
    f, times = traced(lambda a, b, c: (a @ b + c, c * 2))
    for a, b in ((normal(3, 4), normal(4, 2)), (normal(4, 3).transpose(0, 1), normal(4, 2) * 2)):
        product, twice = f(a, b, Tensor(0.5))
        np.testing.assert_allclose(product.numpy(), a.numpy() @ b.numpy() + 0.5, rtol=1e-5)
        assert twice.shape == () and twice.item() == 1
    assert len(times) == 1


def test_results_are_fresh_and_arguments_stay() -> None:
    f, _ = traced(lambda x: (x, x.reshape(2, 2), x * 0 + 1))
    x = normal(4)
    kept = x.numpy().copy()
    same, shaped, ones = f(x)
    other = f(x)[2]
    assert shaped.shape == (2, 2) and other.numpy() is not ones.numpy()
    np.testing.assert_array_equal(same.numpy(), kept)
    np.testing.assert_array_equal(x.numpy(), kept)


@pytest.mark.parametrize("d", ["bool", "int8", "uint64", "float16", "bfloat16", "fp8e4m3", "float64"])
def test_every_kind_of_dtype(d: str) -> None:
    f, _ = traced(lambda x: x.where(x, x))
    x = Tensor([0, 1, 1, 0], dtype=d)
    assert f(x).dtype is x.dtype
    assert f(x).tolist() == x.tolist()


def test_a_captured_tensor_is_a_constant() -> None:
    weight = normal(3)
    before = weight.numpy().copy()
    f, _ = traced(lambda x: x * weight)
    x = normal(3)
    f(x)
    weight.assign(weight + 1)
    np.testing.assert_array_equal(f(x).numpy(), x.numpy() * before)


def test_a_captured_tensor_that_is_returned_is_a_constant() -> None:
    weight = Tensor([1.0, 2.0])
    f, _ = traced(lambda x, k: (x[k + 0], weight))
    x, k = normal(3), Tensor([0, 2])
    f(x, k)
    weight.assign(5.0)
    got = f(x, k)
    assert got[0].tolist() == x.numpy()[[0, 2]].tolist() and got[1].tolist() == [1.0, 2.0]


@pytest.mark.parametrize("is_checked", [False, True])
def test_a_container_that_the_function_keeps_may_change(is_checked: bool) -> None:
    kept_dicts: list[dict[str, Tensor]] = []
    kept_list: list[Any] = []

    def make_dict(x: Tensor, k: Tensor) -> dict[str, Tensor]:
        kept_dicts.append({"y": x[k + 0] if is_checked else x + 1})
        return kept_dicts[-1]

    def make_list(x: Tensor, k: Tensor) -> list[Any]:
        kept_list.append(x[k + 0] if is_checked else x + 1)
        return kept_list

    x, k = normal(3), Tensor([0, 2])
    f, g = uops.jit(make_dict), uops.jit(make_list)
    f(x, k), g(x, k)
    kept_dicts[0]["z"] = x
    kept_list.append("more")
    assert list(f(x, k)) == ["y"] and len(g(x, k)) == 1


def test_indices_are_checked_at_each_call() -> None:
    f, _ = traced(lambda x, k: x[k])
    x = normal(3)
    f(x, Tensor([0, 2]))
    with pytest.raises(IndexError, match="index 3 is out of range"):
        f(x, Tensor([0, 3]))
    with uops.use(unchecked=True):
        f(x, Tensor([1, 1]))


def _assign_to_own_tensors(x: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
    t, zeros = x * 2, Tensor.zeros(3)
    t[0:1] = 5.0
    zeros[k] = x[0:1]
    return t + 1, zeros + t


@pytest.mark.parametrize("backend", ["llvm", "interp"])
@pytest.mark.parametrize("f", [lambda x, k: _assign_to_own_tensors(x, k)[:1], _assign_to_own_tensors])
def test_tensors_of_the_function_may_be_assigned_to(f: Callable[..., Any], backend: str) -> None:
    jitted = uops.jit(f)
    with uops.use(backend):
        for _ in range(3):
            x, k = normal(3), Tensor([1])
            for got, expected in zip(jitted(x, k), f(x, k), strict=True):
                np.testing.assert_array_equal(got.numpy(), expected.numpy())


def test_derivatives_go_through() -> None:
    f, _ = traced(lambda w, x: (x * w).square().sum())
    w, x = normal(3), normal(3)
    f(w, x)
    expected = 2 * w.numpy() * x.numpy() ** 2
    np.testing.assert_allclose(uops.grad(f)(w, x).numpy(), expected, rtol=1e-6)
    np.testing.assert_allclose(uops.jit(uops.grad(f))(w, x).numpy(), expected, rtol=1e-6)
    w.requires_grad_()
    f(w, x).backward()
    assert w.grad is not None
    np.testing.assert_allclose(w.grad.numpy(), expected, rtol=1e-6)


def test_inside_of_other_functions_it_is_traced_with_them() -> None:
    inner, times = traced(lambda x: x + 1)
    outer, _ = traced(lambda x: inner(x) * 2)
    function = uops.function(lambda x: inner(x) * 2)
    x = normal(3)
    np.testing.assert_array_equal(outer(x).numpy(), function(x).numpy())
    assert len(times) == 2


def _assign(x: Tensor) -> Tensor:
    x.assign(x + 1)
    return x


REFUSED: dict[str, tuple[Callable[[], Any], type[SpecError], str]] = {
    "an assignment": (lambda: uops.jit(_assign)(normal(2)), SpecValueError, "no assignment to an argument"),
    "a look at values": (lambda: uops.jit(lambda x: x * x.sum().item())(normal(2)), SpecTypeError, "runs lazily"),
    "no result": (lambda: uops.jit(lambda x: None)(normal(2)), SpecTypeError, "expected a function that returns a Tensor"),
    "an array": (
        lambda: uops.jit(lambda x: normal(2))(np.ones(2)),
        SpecTypeError,
        "Tensor.jit: expected a Tensor or a hashable value",
    ),
    "another device": (lambda: uops.jit(lambda x: x)(normal(2).to("CPU:1")), SpecTypeError, "expected Tensors on the host"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_a_wrong_use_is_one_clear_error(what: str) -> None:
    use, error, message = REFUSED[what]
    with pytest.raises(error, match=message):
        use()
