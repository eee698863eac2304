"""Every method, given nonsense for each of its arguments, gives a well-formed graph or an error of its own, at once.

The error is a SpecError and Python's own IndexError, ValueError or TypeError, and it begins with the method that was called.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
import pytest

from uops import Dialect, SpecError, Tensor, function, verify
from uops.compiler.tensor import capture


def floats(*shape: int) -> Tensor:
    return Tensor(np.ones(shape, np.float32))


def ints(*shape: int) -> Tensor:
    return Tensor(np.ones(shape, np.int32))


# fmt: off
HOSTILE: dict[str, Any] = {
    "None": None, "True": True, "0": 0, "-1": -1, "99": 99, "-99": -99, "2**40": 2**40, "2**64": 2**64, "10**400": 10**400,
    "2**5000": 2**5000, "2**20000": 2**20000,  # Python does not spell the last one
    "1.5": 1.5, "-2.5": -2.5, "nan": float("nan"), "inf": float("inf"), "-1e308": -1e308, "1j": 1j,
    "text": "x", "bytes": b"", "dict": {}, "set": {1}, "object": object(), "type": int, "function": len, "range": range(2),
    "[]": [], "[1]": [1], "['x']": ["x"], "[2**20000]": [2**20000], "ragged": [[1], [1, 2]], "(0, 0)": (0, 0),
    "(1, 2, 3)": (1, 2, 3), "(None,)": (None,), "nested": [(0, 1), None, 5], "tensors": (Tensor([1.0]), Tensor([2.0])),
    "text array": np.array(["a"]), "object array": np.array([None]), "float64": np.float64(2.5), "int8": np.int8(3),
    "a vector": floats(5), "a matrix": ints(2, 3), "a bool": Tensor([True]),
    "...": ..., ":": slice(None), ":'x'": slice("x"), "::0": slice(0, None, 0), ":1.5": slice(1.5),
    ":[1, 2]": slice(Tensor([1, 2])), "far slice": slice(2**20000, None, -(2**20000)),
}
# fmt: on


class Call(NamedTuple):
    """A call that is right, of which one argument at a time is replaced. Without `of` it is one of the class."""

    method: str
    of: Tensor | None
    args: tuple[Any, ...]
    kwargs: dict[str, Any]


def call(method: str, of: Tensor | None, *args: Any, **kwargs: Any) -> Call:
    return Call(method, of, args, kwargs)


F, N, IMAGE = floats(2, 3), ints(2, 3), floats(1, 2, 6, 6)
ARITHMETIC = {"add": "add", "sub": "sub", "mul": "mul", "truediv": "div", "floordiv": "idiv", "mod": "mod", "pow": "pow"}
BITS = ("and", "or", "xor", "lshift", "rshift")
COMPARISONS = ("__lt__", "__gt__", "__le__", "__ge__", "__eq__", "__ne__", "eq", "ne", "maximum", "minimum")
CALLS = [
    *(call(m, t, n) for o in ARITHMETIC for m in (f"__{o}__", f"__r{o}__", ARITHMETIC[o]) for t, n in ((F, 2.0), (N, 2))),
    *(call(m, t, 2) for o in BITS for m in (f"__{o}__", f"__r{o}__") for t in (N, F)),
    *(call(m, t, 2) for m in COMPARISONS for t in (N, F)),
    call("__matmul__", F, floats(3, 2)),
    call("__rmatmul__", F, floats(4, 2)),
    call("matmul", F, floats(3, 2), False, "float32"),
    call("dot", F, floats(3, 2)),
    call("where", N, 1.0, 2.0),
    call("masked_fill", F, Tensor([True, False, True]), 1.0),
    call("clamp", F, 0.0, 1.0),
    call("clip", N, 0, 1),
    call("leaky_relu", F, 0.1),
    call("full_like", F, 1, "int8"),
    call("zeros_like", F, "int8"),
    call("ones_like", F, "int8"),
    call("reshape", F, 3, 2),
    call("reshape", F, (3, 2)),
    call("view", F, 6),
    call("permute", F, 1, 0),
    call("permute", F, (1, 0)),
    call("transpose", F, 0, 1),
    call("expand", F, 2, 3),
    call("broadcast_to", F, (2, 3)),
    call("pad", F, [(0, 1), (1, 0)], 1.0),
    call("pad", F, (1, 1), 0),
    call("shrink", F, [(0, 1), None]),
    call("shrink_to", F, 1, None),
    call("shrink_to", F, (1, 2)),
    call("flip", F, 0),
    call("flip", F, (0, 1)),
    call("unsqueeze", F, 0),
    call("squeeze", F, 0),
    call("flatten", F, 0, 1),
    call("unflatten", F, 0, (1, 2)),
    call("split", F, 1, 0),
    call("split", F, [1, 2], 1),
    call("chunk", F, 2, 0),
    call("cat", F, F, dim=0),
    call("stack", F, F, dim=0),
    call("cat", None, (F, F), dim=0),
    call("stack", None, [F, F], dim=0),
    call("repeat", F, 2, 2),
    call("repeat", F, (1, 2)),
    call("repeat_interleave", F, 2, 0),
    call("roll", F, 1, 0),
    call("bitcast", F, "int32"),
    call("cast", F, "int32"),
    call("size", F, 0),
    *(call(m, F, 0, False, "float32") for m in ("sum", "prod")),
    *(call(m, F, 0, True) for m in ("max", "min", "any", "all", "mean", "argmax", "argmin", "logsumexp")),
    *(call(m, F, 0, False, 1) for m in ("var", "std")),
    *(call(m, F, 0) for m in ("softmax", "log_softmax", "cumsum")),
    call("conv2d", IMAGE, floats(4, 2, 3, 3), floats(4), 1, 1, 1, 0, "float32"),
    call("max_pool2d", IMAGE, 2, 2, 1, 0),
    call("max_pool2d", IMAGE, (2, 2), (1, 1), (1, 1), (1, 1)),
    call("avg_pool2d", IMAGE, 2, 2, 1, 0, True),
    call("avg_pool2d", IMAGE, (2, 2), (1, 1), 1, (1, 1, 0, 0), False),
    call("linear", F, floats(3, 4), floats(4)),
    call("layernorm", F, -1, 1e-5),
    call("batchnorm", F, floats(3), floats(3), floats(3), floats(3), 1),
    call("scaled_dot_product_attention", floats(2, 4), floats(3, 4), floats(3, 5), floats(2, 3), False, 0.5),
    call("scaled_dot_product_attention", floats(2, 4), floats(3, 4), floats(3, 5), None, True, 0.5),
    call("tril", F, 0),
    call("triu", F, 1),
    call("gather", F, 1, ints(2, 3)),
    call("take", F, N, 0, True),
    call("to", F, "D1"),
    call("requires_grad_", F, False),
    call("gradient", F, F, gradient=F),
    call("backward", F.sum(), Tensor(1.0)),
    call("shard", F, ("D0", "D1"), 0),
    call("one_hot", N, 3),
    call("__getitem__", F, 0),
    call("__getitem__", F, [0, 1]),
    call("__setitem__", F, 0, 1.0),
    call("__setitem__", F, (0, [0, 1]), floats(2)),
    call("assign", F, F),
    call("realize", F, F, backend="llvm", unchecked=False),
    call("full", None, (2, 3), 1.0, "float32"),
    call("zeros", None, 2, 3, dtype="int8"),
    call("ones", None, (2, 3), dtype="int8"),
    call("arange", None, 0, 5, 1, "int32"),
    call("arange", None, 0.0, 5.0, 1.0),
    call("linspace", None, 0, 1, 5, "float32"),
    call("eye", None, 2, 3, "float32"),
    call("manual_seed", None, 3),
    call("rand", None, 2, 3, dtype="float32"),
    call("randn", None, (2, 3), dtype="float16"),
    call("normal", None, 2),
    call("uniform", None, 2, 3, low=0.0, high=1.0, dtype="float64"),
    call("randint", None, 2, 3, low=0, high=10, dtype="int8"),
    call("from_numpy", None, np.ones(2)),
    call("from_dlpack", None, np.ones(2)),
    call("__init__", None, [1.0], "float32"),
    call("__init__", None, 1),
]
#: An operator is called by the name of its method.
ALIASES = {
    **{f"__{p}{o}__": m for o, m in {**ARITHMETIC, "matmul": "matmul"}.items() for p in ("", "r")},
    **{f"__r{o}__": f"__{o}__" for o in ("and", "or", "xor")},
    "__eq__": "eq", "__ne__": "ne",
}  # fmt: skip
#: `of` wraps a node at no cost; the others are called by NumPy and by consumers of DLPack, whose errors they have.
PROTOCOLS = {"of", "__array__", "__dlpack__", "__getattr__"}


def variants(c: Call) -> Iterator[tuple[str, Call]]:
    yield "as it is", c
    for name, value in HOSTILE.items():
        for k in range(len(c.args)):
            yield f"argument {k} is {name}", c._replace(args=(*c.args[:k], value, *c.args[k + 1 :]))
        for k in c.kwargs:
            yield f"{k} is {name}", c._replace(kwargs={**c.kwargs, k: value})


def called(c: Call) -> Any:
    of = c.of if c.of is None else Tensor(c.of)  # an assignment changes its own
    if c.method == "__init__":
        return Tensor(*c.args, **c.kwargs)
    return getattr(Tensor if of is None else of, c.method)(*c.args, **c.kwargs)


def judge(c: Call) -> str:
    """What is wrong with the outcome of a call; nothing if the text is empty."""
    name = ALIASES.get(c.method, c.method)
    beginning = "Tensor: " if name == "__init__" else f"Tensor.{name}: "
    try:
        found = called(c)
    except SpecError as e:
        if not isinstance(e, (IndexError, ValueError, TypeError)):
            return f"no standard error: {e!r}"
        return "" if str(e).startswith(beginning) else f"another method is blamed: {e}"
    except Exception as e:
        return f"Python's own error: {e!r}"
    try:
        for t in found if isinstance(found, tuple) else (found,):
            if isinstance(t, Tensor):
                verify(capture(t).graph, Dialect.TENSOR)
    except Exception as e:
        return f"a late error: {e!r}"
    return ""


@pytest.mark.parametrize("method", dict.fromkeys(c.method for c in CALLS))
def test_nonsense_is_an_error_of_the_method_that_is_called(method: str) -> None:
    wrong = {what: fault for c in CALLS if c.method == method for what, v in variants(c) if (fault := judge(v))}
    assert not wrong


def test_every_method_with_an_argument_is_tried() -> None:
    tried = {c.method for c in CALLS} | PROTOCOLS

    def takes_arguments(f: Any) -> bool:
        return inspect.isroutine(f) and len(inspect.signature(f).parameters) > (0 if inspect.ismethod(f) else 1)

    public = {n for n in dir(Tensor) if n not in dir(object) and (not n.startswith("_") or n.endswith("__"))}
    assert {n for n in public if takes_arguments(getattr(Tensor, n))} <= tried


NAMED: list[tuple[Callable[[], Any], type[Exception], str]] = [
    (lambda: Tensor([1]).stack((Tensor([1]), Tensor([2]))), TypeError, "Tensor.stack: expected Tensors, got tuple"),  # type: ignore[arg-type]
    (lambda: Tensor.stack(()), ValueError, "Tensor.stack: expected at least one Tensor"),  # type: ignore[arg-type]
    (lambda: Tensor([1, 2])[[[0], [0, 1]]], ValueError, "Tensor.__getitem__: expected rows of equal shape"),
    (lambda: Tensor([2**64]), ValueError, r"Tensor: 18446744073709551616 is no value of an integer dtype \[CONST.C2"),
    (
        lambda: Tensor([1]) << 1.0,
        TypeError,
        r"Tensor.__lshift__: expected an integer shift count, got float32 \[SHL.C3: the count is an integer\]",
    ),
    (lambda: 1 >> Tensor([1.0]), TypeError, r"Tensor.__rrshift__: does not take operands of float32 and float32 \[SHR.C2"),
    (lambda: Tensor([1]).one_hot(-1), ValueError, "Tensor.one_hot: expected a number of classes of at least 0, got -1"),
    (lambda: Tensor.rand(-3, 3), ValueError, r"Tensor.rand: expected extents of at least 0, got \(-3, 3\) \[EXPAND.C5"),
    (lambda: Tensor.eye(-1), ValueError, r"Tensor.eye: expected extents of at least 0, got \(-1, -1\)"),
    (
        lambda: Tensor.randint(3, low=0, high=300, dtype="int8"),
        ValueError,
        "Tensor.randint: expected a value of int8, from .*, got 299",
    ),
    (lambda: Tensor([1, 2])[2], IndexError, r"Tensor.__getitem__: index 2 is out of range for axis 0 of shape \(2,\)"),
    (lambda: Tensor([1, 2])[0, 0], IndexError, r"Tensor.__getitem__: expected at most one index per axis of shape \(2,\), got 2"),
    (lambda: Tensor([1, 2]).__setitem__(5, 1), IndexError, "Tensor.__setitem__: index 5 is out of range for axis 0"),
    (lambda: Tensor([1, 2]).sum(1), IndexError, "Tensor.sum: axis 1 is out of range"),
    (lambda: Tensor([1, 2])["x"], TypeError, "Tensor.__getitem__: expected an integer, a slice, None, ... or an array, got str"),
    (lambda: Tensor([1, 2]).reshape(3), ValueError, "Tensor.reshape: "),
    (lambda: int(Tensor(float("nan"))), ValueError, "Tensor.__int__: expected a finite value, got nan"),
    (lambda: len(Tensor(1)), TypeError, "Tensor.__len__: "),
    (lambda: list(Tensor(1)), TypeError, "Tensor.__iter__: "),
    (lambda: Tensor([1.0], dtype="f31"), TypeError, "Tensor: 'f31' is not a dtype of a Tensor"),
]


@pytest.mark.parametrize("k", range(len(NAMED)))
def test_errors_have_pythons_classes_and_the_users_words(k: int) -> None:
    made, kind, message = NAMED[k]
    with pytest.raises(SpecError, match=f"^{message}") as caught:
        made()
    assert isinstance(caught.value, kind)


def test_an_error_inside_of_a_function_names_the_users_method() -> None:
    @function
    def f(t: Tensor) -> Tensor:
        return t.tril().reshape(5)

    with pytest.raises(SpecError, match=r"^Tensor.reshape: \(2, 3\) has 6 elements"):
        f(floats(2, 3))


def test_a_sequence_of_tensors_is_joined_as_in_numpy() -> None:
    a, b = Tensor([1, 2]), Tensor([3.5, 4.5])
    assert Tensor.stack((a, b), dim=1).tolist() == [[1.0, 3.5], [2.0, 4.5]] == a.stack(b, dim=1).tolist()  # type: ignore[arg-type]
    assert Tensor.cat([a, b]).tolist() == [1.0, 2.0, 3.5, 4.5] == a.cat(b).tolist()  # type: ignore[arg-type]


def test_dtypes_have_the_names_of_the_text() -> None:
    names = {
        t.dtype.short: t.dtype.name for t in (Tensor([1], dtype=s) for s in ("f32", "f16", "bf16", "f64", "i8", "u64", "bool"))
    }
    assert names == {
        "f32": "float32", "f16": "float16", "bf16": "bfloat16", "f64": "float64", "i8": "int8", "u64": "uint64", "bool": "bool",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda x: x.clip(), "Tensor.clip:"),
        (lambda x: x.view(5), "Tensor.view:"),
        (lambda x: x.dot(3.0), "Tensor.dot:"),
        (lambda x: x.broadcast_to(7), "Tensor.broadcast_to:"),
        (lambda x: Tensor.normal(-2), "Tensor.normal:"),
        (lambda x: Tensor.stack(), r"Tensor\.stack\(\) missing"),
        (lambda x: x.gather(), r"Tensor\.gather\(\) missing 2"),
        (lambda x: x.sum(axes=1), r"Tensor\.sum\(\) got an unexpected keyword argument 'axes'"),
        (lambda x: x[None, ..., ...], "expected at most one Ellipsis, got 2"),
    ],
)
def test_an_error_names_the_method_that_was_called(call: Callable[[Tensor], Any], said: str) -> None:
    with pytest.raises((SpecError, TypeError), match=said):
        call(Tensor([[1.0, 2.0, 3.0]] * 2))


@pytest.mark.parametrize(
    ("call", "method", "axes"),
    [
        (lambda x: Tensor.zeros((1,) * 65), "zeros", 65),
        (lambda x: Tensor.randint((1,) * 65), "randint", 65),
        (lambda x: x[(None,) * 70], "__getitem__", 72),
        (lambda x: x.reshape((1,) * 64 + (6,)), "reshape", 65),
        (lambda x: x.view((1,) * 64 + (6,)), "view", 65),
        (lambda x: x.expand((1,) * 64 + (2, 3)), "expand", 66),
        (lambda x: x.broadcast_to((1,) * 64 + (2, 3)), "broadcast_to", 66),
        (lambda x: x.repeat(*(1,) * 65), "repeat", 65),
        (lambda x: x.unflatten(1, (1,) * 64 + (3,)), "unflatten", 66),
        (lambda x: x.reshape((1,) * 62 + (2, 3)).unsqueeze(0), "unsqueeze", 65),
        (lambda x: Tensor.stack((x.reshape((1,) * 62 + (2, 3)),) * 2), "stack", 65),
        (lambda x: x.reshape((1,) * 62 + (2, 3)).cast("int32").one_hot(2), "one_hot", 65),
    ],
)
def test_more_axes_than_a_value_has_are_a_value_error(call: Callable[[Tensor], Any], method: str, axes: int) -> None:
    with pytest.raises(ValueError, match=rf"^Tensor\.{method}: expected at most 64 axes, got {axes} \(R65\)$") as error:
        call(Tensor([[1.0, 2.0, 3.0]] * 2))
    assert isinstance(error.value, SpecError)
