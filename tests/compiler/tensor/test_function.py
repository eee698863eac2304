"""`@function`: the specification's five steps, as graphs and as values."""

from __future__ import annotations

import dataclasses
import functools
import pkgutil
from importlib import import_module
from typing import Any, NamedTuple

import numpy as np
import pytest

from uops import Op, SpecError, Tensor, function, grad, jit
from uops.compiler import tensor
from uops.compiler.tensor import capture
from uops.spec.errors import SpecTypeError
from uops.spec.ir import build as b
from uops.spec.ir import dtypes as dt
from uops.spec.ir.node import UOp, toposort

X, Y = np.array([1, 2, 3], np.float32), np.array([10, 20, 30], np.float32)


def node(t: Tensor) -> UOp:
    """The Function of a GetTuple."""
    assert t.uop.op is Op.GETTUPLE
    found = t.uop.src[0]
    assert found.op is Op.FUNCTION
    return found


def params(*shapes: tuple[int, ...]) -> list[UOp]:
    return [b.param(k, s, dt.float32) for k, s in enumerate(shapes)]


def test_a_call_is_get_tuple_of_a_function_of_a_tuple(agree: Any) -> None:
    @function
    def f(x: Tensor, y: Tensor) -> Tensor:
        return x + y

    x, y = Tensor(X), Tensor(Y)
    out = f(x, y)
    p, q = params((3,), (3,))
    assert out.uop is b.get(b.function(b.tuple_(b.add(p, q)), x.uop, y.uop), 0)
    agree(out, X + Y, 0)
    assert f.__name__ == "f"


def test_inputs_are_found_in_containers_and_each_node_once(agree: Any) -> None:
    @function
    def f(pair: tuple[Tensor, list[Tensor]], *, more: dict[str, Tensor], scale: int) -> Tensor:
        return pair[0] + pair[1][0] * more["x"] * scale

    x, y = Tensor(X), Tensor(Y)
    out = f((x, [y]), more={"x": x}, scale=2)
    assert node(out).src[1:] == (x.uop, y.uop)
    agree(out, X + Y * X * 2, 0)


def test_results_keep_their_containers_and_share_one_function(agree: Any) -> None:
    class Pair(NamedTuple):
        low: Tensor
        high: Tensor

    @function
    def f(x: Tensor) -> Any:
        y = x + 1
        return [y, {"twice": x * 2, "same": y}], Pair(x.min(), x.max()), None, 7

    (first, named), pair, nothing, seven = f(Tensor(X))
    assert nothing is None and seven == 7 and isinstance(pair, Pair)
    assert named["same"].uop is first.uop
    assert len({node(t) for t in (first, named["twice"], *pair)}) == 1
    assert len(node(first).src[0].src) == 4
    agree([first, named["twice"], pair.low, pair.high], [X + 1, X * 2, X.min(), X.max()], 0)


def test_an_argument_may_be_an_expression_of_another(agree: Any) -> None:
    @function
    def f(x: Tensor, y: Tensor) -> Tensor:
        return x * y

    x = Tensor(X)
    z = x + 1
    out = f(x, z)
    p, q = params((3,), (3,))
    assert node(out).src == (b.tuple_(b.mul(p, q)), x.uop, z.uop)
    agree(out, X * (X + 1), 0)


def test_captured_tensors_become_further_params(agree: Any) -> None:
    w, c = Tensor(Y), Tensor(X) * 2

    @function
    def f(x: Tensor) -> Tensor:
        return x * w + c + w

    out = f(Tensor(X))
    assert len(node(out).src) == 4  # body, x, the memory of w and that of c
    assert not [u for u in toposort(node(out).src[0]) if u.op is Op.BUFFER]
    agree(out, X * Y + X * 2 + Y, 0)


def test_a_constant_argument_is_told_from_equal_literals(agree: Any) -> None:
    @function
    def f(x: Tensor, s: Tensor) -> Tensor:
        return x * 2.0 + s

    s = Tensor(2.0)
    out = f(Tensor(X), s)
    p, q = params((3,), ())
    assert node(out).src[0] is b.tuple_(b.add(b.mul(p, 2.0), q))
    agree(out, X * 2 + 2, 0)


def test_a_reshaped_argument_is_still_its_param() -> None:
    @function
    def f(x: Tensor) -> Tensor:
        return x.reshape(3).sum()

    out = f(Tensor(X.reshape(3, 1)))
    assert len(node(out).src) == 2


def test_functions_nest_and_their_bodies_own_their_params(agree: Any) -> None:
    @function
    def inner(a: Tensor, c: Tensor) -> Tensor:
        return a - c * k

    @function
    def outer(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        return inner(y, x), inner(x + 1, y) * k

    k = Tensor(np.float32(3))
    first, second = outer(Tensor(X), Tensor(Y))
    assert len([u for u in toposort(first.uop) if u.op is Op.FUNCTION]) == 3
    assert len(node(first).src) == 4
    agree([first, second], [Y - X * 3, (X + 1 - Y * 3) * 3], 0)


def test_a_nested_function_may_capture_what_its_caller_was_given(agree: Any) -> None:
    @function
    def outer(x: Tensor, y: Tensor) -> Tensor:
        @function
        def inner(z: Tensor) -> Tensor:
            return z * x

        return inner(y) + inner(x)

    agree(outer(Tensor(X), Tensor(Y)), Y * X + X * X, 0)


def test_calls_of_one_structure_share_their_body_and_their_graph() -> None:
    @function
    def f(x: Tensor) -> Tensor:
        return x.softmax()

    a, c = f(Tensor(X)), f(Tensor(Y))
    assert node(a).src[0] is node(c).src[0]
    assert capture(a).graph is capture(c).graph


def test_an_input_returned_and_a_tensor_made_inside_are_results(agree: Any) -> None:
    @function
    def f(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        made = Tensor([1.0, 2.0, 3.0])
        made[0] = x[2]
        return x, made, Tensor.arange(3)

    agree(list(f(Tensor(X))), [X, np.array([3, 2, 3], "f4"), np.arange(3, dtype="i4")], 0)


def test_a_function_may_be_realized_and_used_again(agree: Any) -> None:
    @function
    def f(x: Tensor) -> Tensor:
        return x * x

    y = f(Tensor(X)).realize()
    agree(f(y), X**4, 0)


def test_nothing_is_realized_while_tracing() -> None:
    @function
    def f(x: Tensor) -> Tensor:
        return x * 2 if x.sum().item() > 0 else x

    with pytest.raises(SpecError, match="@function f runs lazily"):
        f(Tensor(X))
    assert (Tensor(X) + 1).tolist() == [2, 3, 4]  # and after the failure all is as before


def test_an_input_cannot_be_assigned() -> None:
    @function
    def f(x: Tensor) -> Tensor:
        x[0] = 1
        return x

    t = Tensor(X)
    with pytest.raises(SpecError, match="@function f assigns to an input"):
        f(t)
    assert t.tolist() == X.tolist()


def test_a_function_returns_a_tensor() -> None:
    with pytest.raises(SpecError, match="must return a Tensor"):
        function(lambda x: 3)(Tensor(X))


def test_a_value_that_leaves_the_trace_by_another_way_is_refused() -> None:
    w, kept = Tensor(Y), []

    @function
    def f(x: Tensor) -> Tensor:
        w[0] = x[0]
        kept.append(x + 1)
        return x * 2

    assert f(Tensor(X)).tolist() == [2, 4, 6]
    for t in (w, kept[0]):
        with pytest.raises(SpecError, match="left it otherwise than by return"):
            t.tolist()


def test_methods_are_functions_too(agree: Any) -> None:
    class Layer:
        def __init__(self) -> None:
            self.weight = Tensor(Y)

        @function
        def __call__(self, x: Tensor) -> Tensor:
            return x * self.weight

    agree(Layer()(Tensor(X)), X * Y, 0)


def test_a_field_that_its_class_initializes_is_passed_and_returned() -> None:
    @dataclasses.dataclass
    class Scaled:
        value: Tensor
        scale: float = dataclasses.field(init=False, default=1.0)
        unset: float = dataclasses.field(init=False)

    scaled = Scaled(Tensor(X))
    scaled.scale = 5.0
    result = function(lambda s: (s.value * s.scale, s))(scaled)
    assert result[0].tolist() == [5, 10, 15] and result[1].scale == 5 and not hasattr(result[1], "unset")


@dataclasses.dataclass
class Model:
    weight: Tensor

    def __post_init__(self) -> None:
        self.scale: Any = Tensor(1.0)
        self.circular: list[Any] = []
        self.circular.append(self.circular)

    @functools.cached_property
    def twice(self) -> Tensor:
        return self.weight + self.weight


def test_a_tensor_in_an_attribute_that_is_no_field_is_refused() -> None:
    def scaled(m: Any) -> Any:
        return m.weight * m.scale

    model, x = Model(Tensor(X)), Tensor(X)
    model.scale = Tensor(5.0)
    for f in (function(scaled), jit(scaled), grad(lambda m: scaled(m).sum())):
        with pytest.raises(SpecTypeError, match="Tensors of a Model in its fields, got one in its attribute scale"):
            f(model)
    model.scale = [{"a": (1, x)}]
    with pytest.raises(SpecTypeError, match="attribute scale: declare it as a field"):
        function(lambda m: m.weight)(model)
    with pytest.raises(SpecTypeError, match="attribute scale"):
        function(lambda x: (x, model))(x)


def test_other_attributes_and_cached_properties_are_no_obstacle() -> None:
    model = Model(Tensor(X))
    model.scale = "no Tensor"
    assert model.twice.tolist() == [2, 4, 6]
    assert function(lambda m: m.twice * 2)(model).tolist() == [4, 8, 12]


def test_no_module_of_the_package_hides_a_name_of_it() -> None:
    for module in pkgutil.iter_modules(tensor.__path__):
        import_module(f"{tensor.__name__}.{module.name}")
        assert module.name not in tensor.__all__
    assert tensor.function is function
