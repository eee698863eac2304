"""The generated function of a jitted call is used for its own arguments, and for no others."""

from __future__ import annotations

import copy
import dataclasses
from collections import OrderedDict
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import numpy as np
import pytest

import uops
from uops import Tensor
from uops.compiler.tensor import realize
from uops.compiler.tensor.compiled_calls import JitFunction
from uops.spec.errors import SpecTypeError


@dataclasses.dataclass
class Weights:
    first: Tensor
    second: Tensor


@dataclasses.dataclass(frozen=True)
class Scaled:
    value: Tensor
    scale: float = dataclasses.field(init=False, default=1.0)

    @classmethod
    def by(cls, value: Tensor, scale: float) -> Scaled:
        """Return a value with another scale than the default one."""
        made = cls(value)
        object.__setattr__(made, "scale", scale)
        return made


def numbers(*values: float) -> Tensor:
    return Tensor(np.array(values, np.float32))


@pytest.fixture
def slow_calls(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Grows by one with each call that the generated function declined."""
    calls: list[int] = []
    by_structure = JitFunction._run_compiled_unless_traced_or_differentiated

    def count(self: JitFunction[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        calls.append(1)
        return by_structure(self, args, kwargs)

    monkeypatch.setattr(JitFunction, "_run_compiled_unless_traced_or_differentiated", count)
    return calls


@pytest.mark.parametrize(
    ("f", "args", "kwargs"),
    [
        (lambda x, y: (x * y + x) * y, (numbers(1, 2), numbers(3, 4)), {}),
        (lambda x: x.reshape(2, 2) @ x.reshape(2, 2), (numbers(1, 2, 3, 4),), {}),
        (lambda w, k: Weights(w.second * k, w.first + w.second), (Weights(numbers(1, 2), numbers(3, 4)), 2.5), {}),
        (lambda d: {"sum": d["a"] + d["b"][0], "kept": 7}, ({"a": numbers(1), "b": [numbers(2), "name"]},), {}),
        (lambda x, *, flag, n: (x + n, [x - n]) if flag else (x,), (numbers(1, 2),), {"flag": True, "n": 0}),
        (lambda x, flag: x + 1 if flag else x * 3, (numbers(1, 2), False), {}),
        (lambda x, y: x + y, (Tensor(3.0), Tensor(4.0)), {}),
    ],
)
def test_a_call_with_the_same_structure_gives_the_same(
    f: Callable[..., Any], args: Any, kwargs: Any, slow_calls: list[int]
) -> None:
    jitted = uops.jit(f)
    first = jitted(*args, **kwargs)
    again = jitted(*args, **kwargs)
    plain = f(*args, **kwargs)
    assert len(slow_calls) == 1
    assert to_arrays(first) == to_arrays(again) == to_arrays(plain)


def to_arrays(value: Any) -> Any:
    if isinstance(value, Tensor):
        return value.shape, value.dtype, value.numpy().tobytes()
    if isinstance(value, dict):
        return {k: to_arrays(v) for k, v in value.items()}
    if isinstance(value, (tuple, list)):
        return type(value), [to_arrays(v) for v in value]
    if isinstance(value, Weights):
        return Weights, to_arrays([value.first, value.second])
    return value


X = numbers(1, 2)


@pytest.mark.parametrize(
    ("own", "other"),
    [
        ((X,), (numbers(1, 2, 3),)),
        ((X,), (Tensor([1, 2]),)),
        ((X,), (X.reshape(2, 1).realize(),)),
        ((X,), (X, X)),
        ((X, 2.0), (X, 3.0)),
        ((X, 2), (X, 2.0)),
        ((X, 1), (X, True)),
        ((X, 0.0), (X, -0.0)),
        ((X, [X]), (X, (X,))),
        ((X, [X]), (X, [X, X])),
        ((X, {"a": X, "b": 1}), (X, {"b": 1, "a": X})),
        ((X, {"a": X}), (X, {"b": X})),
        ((X, Weights(X, X)), (X, (X, X))),
        ((X,), (X * 2,)),
    ],
)
def test_other_arguments_are_declined(own: Any, other: Any, slow_calls: list[int]) -> None:
    def f(x: Tensor, *rest: Any) -> Tensor:
        """Divide by the numbers, so that the sign of a zero shows."""
        for value in rest:
            if isinstance(value, (int, float)):
                x = x / Tensor(float(value))
        return x + len(rest)

    jitted = uops.jit(f)
    jitted(*own)
    jitted(*own)
    before = len(slow_calls)
    assert to_arrays(jitted(*other)) == to_arrays(f(*other))
    assert len(slow_calls) == before + 1
    assert to_arrays(jitted(*own)) == to_arrays(f(*own))


def test_an_attribute_that_is_no_field_is_declined_and_refused(slow_calls: list[int]) -> None:
    jitted, w = uops.jit(lambda w: w.first + w.second), Weights(numbers(1, 2), numbers(3, 4))
    assert [jitted(w).tolist() for _ in range(3)] == [[4, 6]] * 3 and len(slow_calls) == 1
    w.third = X  # type: ignore[attr-defined]
    with pytest.raises(SpecTypeError, match="got one in its attribute third: declare it as a field"):
        jitted(w)
    w.third = 3  # type: ignore[attr-defined]
    assert jitted(w).tolist() == [4, 6]


class ListOfItsOwn(list):  # type: ignore[type-arg]
    """A list that is no container of arguments."""


def test_what_is_a_container_is_one_question() -> None:
    """Tensors are numbered by the containers of the structure, and given to the program by those of the traced function."""
    ordered = OrderedDict(a=X, b=numbers(3, 4))
    assert uops.jit(lambda d, y: d["b"] * y)(ordered, X).tolist() == [3, 8]
    with pytest.raises(TypeError, match="expected a Tensor or a hashable value, got"):
        uops.jit(lambda values, y: y * 10)(ListOfItsOwn([X]), numbers(3, 4))


def test_a_nan_is_its_own_argument() -> None:
    jitted = uops.jit(lambda x, k: x + k)
    for _ in range(2):
        assert np.isnan(jitted(X, float("nan")).numpy()).all()


@pytest.mark.parametrize(
    ("own", "other"),
    [
        (0.0, -0.0),
        (np.float64(0.0), np.float64(-0.0)),
        (np.float32(0.0), np.float32(-0.0)),
        (np.float64(1.0), np.float32(1.0)),
        (complex(1, 0.0), complex(1, -0.0)),
        (frozenset({1}), frozenset({1.0})),
        (frozenset({(0.0, 1)}), frozenset({(-0.0, 1)})),
        (range(0), range(2, 2)),
        (Decimal("1"), Decimal("1.0")),
        ({1: 2}, {1.0: 2}),
        ({0.0: 2}, {-0.0: 2}),
        (Scaled.by(X, 1.0), Scaled.by(X, 5.0)),
    ],
)
def test_equal_constants_that_differ_are_traced_apart(own: Any, other: Any) -> None:
    seen: list[str] = []

    def f(x: Tensor, k: Any) -> Tensor:
        seen.append(describe(k))
        return x + len(seen)

    def describe(k: Any) -> str:
        return str(k.scale) if isinstance(k, Scaled) else repr(k)

    jitted = uops.jit(f)
    for _ in range(2):
        for k, expected in ((own, [2, 3]), (other, [3, 4]), (other, [3, 4])):
            assert jitted(X, k).tolist() == expected
    assert seen == [describe(own), describe(other)]


def test_other_settings_are_declined(slow_calls: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    jitted = uops.jit(lambda x: x + 1)
    jitted(X)
    for _ in range(2):
        with uops.use("interp"):
            jitted(X)
    with uops.use("llvm"):  # the default
        assert len(slow_calls) == 3
        jitted(X)
        jitted(X)
    assert len(slow_calls) == 4
    assert realize.RunnerState.runner is not None
    realize.install(realize.RunnerState.runner)
    jitted(X)
    assert len(slow_calls) == 5


def test_an_assignment_to_an_argument_counts(slow_calls: list[int]) -> None:
    jitted = uops.jit(lambda x: x * 2)
    x = numbers(1, 2)
    jitted(x)
    x[0].assign(5.0)
    assert jitted(x).tolist() == [10, 4]
    x.assign(x + 1)
    assert jitted(x).tolist() == [12, 6]
    assert len(slow_calls) == 3 and jitted(x).tolist() == [12, 6] and len(slow_calls) == 3


def test_a_tracked_argument_has_a_derivative_later() -> None:
    jitted = uops.jit(lambda x: (x * x).sum())
    x = numbers(1, 2)
    jitted(x)
    x.requires_grad_()
    jitted(x).backward()
    assert x.grad is not None and x.grad.tolist() == [2, 4]
    del x
    assert jitted(X).item() == 5


def test_a_view_of_a_tracked_argument_has_a_derivative() -> None:
    jitted = uops.jit(lambda x: (x * x).sum())
    x = numbers(1, 2)
    jitted(x.reshape(2))
    x.requires_grad_()
    jitted(x.reshape(2)).backward()
    assert x.grad is not None and x.grad.tolist() == [2, 4]
    x.requires_grad_(False)
    row = x.reshape(2)
    assert jitted(row).item() == jitted(row).item() == 5
    x.requires_grad_()
    jitted(x.reshape(2)).backward()
    assert x.grad.tolist() == [4, 8]


def test_calls_are_quick_while_other_tensors_are_tracked(slow_calls: list[int]) -> None:
    jitted = uops.jit(lambda x: x * 2)
    weights = numbers(1, 2).requires_grad_()
    for _ in range(3):
        assert jitted(X).tolist() == [2, 4]
    assert weights.requires_grad and len(slow_calls) == 1


def test_what_only_looks_like_a_tensor_is_none() -> None:
    class Impostor:
        _array = np.ones(2, np.float32)

    jitted = uops.jit(lambda x: x + 1)
    jitted(X)
    with pytest.raises(TypeError):
        jitted(Impostor())


def test_indices_are_checked_however_often() -> None:
    jitted = uops.jit(lambda x, i: x[i])
    for _ in range(3):
        assert jitted(X, Tensor([1, 0])).tolist() == [2, 1]
        with pytest.raises(IndexError):
            jitted(X, Tensor([1, 2]))


def test_a_result_is_a_tensor_like_any_other() -> None:
    jitted = uops.jit(lambda x: (x.reshape(2, 1), x.cast("bf16"), x > 1))
    jitted(X)
    column, small, truth = jitted(X)
    assert (column + column.transpose(0, 1)).tolist() == [[2, 3], [3, 4]]
    assert str(small.dtype) == "bfloat16" and (small * 2).cast("f32").tolist() == [2, 4]
    assert truth.tolist() == [False, True] and truth.is_realized
    copied = copy.copy(jitted(X)[0])
    assert copied.tolist() == [[1], [2]]
    with pytest.raises(AttributeError, match=r"'Tensor' object has no attribute 'shapes'"):
        _ = jitted(X)[0].shapes
    assert jitted(column.reshape(2))[0].tolist() == [[1], [2]]
    column.assign(column + 1)
    assert column.tolist() == [[2], [3]] and jitted(X)[0].tolist() == [[1], [2]]


def test_results_of_calls_are_arguments_of_calls(slow_calls: list[int]) -> None:
    jitted = uops.jit(lambda x: x * 2)
    x = X
    for _ in range(5):
        x = jitted(x)
    assert x.tolist() == [32, 64] and len(slow_calls) == 1


def test_what_cannot_be_generated_is_called_by_structure(slow_calls: list[int]) -> None:
    jitted = uops.jit(lambda x: x + 1)
    with uops.use("interp"):
        for _ in range(2):
            jitted(X)
    assert len(slow_calls) == 2
