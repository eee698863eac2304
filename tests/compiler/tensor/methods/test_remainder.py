"""`%` and `//` of floats have NumPy's bits for every input but the payload of a NaN, compiled and interpreted."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from uops import Tensor
from uops.compiler.tensor import capture
from uops.interp import run

Array = np.ndarray[Any, np.dtype[Any]]
Fn = Callable[[Any, Any], Any]

DTYPES = [
    np.dtype(d)
    for d in ("f2", "f4", "f8", ml_dtypes.bfloat16, ml_dtypes.float8_e5m2, ml_dtypes.float8_e4m3fn)
]  # fmt: skip
OPERATORS: dict[str, tuple[Fn, Fn]] = {
    "mod": (operator.mod, np.remainder),
    "floordiv": (operator.floordiv, np.floor_divide),
}
EDGES = np.array(
    [0, 1, 2, 3, 5, 7, 0.1, 0.5, 1.5, 448, 57344, 65504, 1e9, 16777217, 1e-38, 1e-45, 3e38, 1e308, 5e-324, 1e-310, np.inf, np.nan]
)


def bits(a: Array) -> Array:
    """The words of the elements; every NaN is one."""
    return np.where(np.isnan(a.astype("f8")), 0, a.view(f"u{a.itemsize}").astype("u8") + np.uint64(1))


def numpys(f: Fn, a: Array, b: Array) -> Array:
    """NumPy's result; of dtypes that NumPy has no floats for in float32, rounded once."""
    with np.errstate(all="ignore"):
        found: Array = f(a, b) if a.dtype.kind == "f" else f(a.astype("f4"), b.astype("f4")).astype(a.dtype)
        return found


def edges(d: np.dtype[Any]) -> tuple[Array, Array]:
    """Every pair of values of note, of either sign, with their neighbours and the least numbers."""
    word = np.dtype(f"u{d.itemsize}").type
    with np.errstate(all="ignore"):
        some = np.concatenate([EDGES, -EDGES]).astype(d)
    words = some.view(word)
    every = np.concatenate([words, words + word(1), words - word(1), np.arange(9, dtype=word)]).view(d)
    return np.repeat(every, len(every)), np.tile(every, len(every))


def random_pairs(d: np.dtype[Any], n: int) -> tuple[Array, Array]:
    """Random words, random words near in exponent, and multiples."""
    rng = np.random.default_rng(28)
    word, some = np.dtype(f"u{d.itemsize}"), 2 ** (8 * d.itemsize - 4)
    x, y = (rng.integers(0, 16 * some, n, word).view(d) for _ in range(2))
    near = (x.view(word).astype("i8") + rng.integers(-some, some, n)).astype(word).view(d)
    with np.errstate(all="ignore"):
        multiple = (y.astype("f8") * rng.integers(-99, 99, n)).astype(d)
    return np.concatenate([x, x, multiple]), np.concatenate([y, near, y])


def check(a: Array, b: Array, *backends: str) -> None:
    for f, reference in OPERATORS.values():
        want = bits(numpys(reference, a, b))
        t = f(Tensor(a), Tensor(b))
        for backend in backends:
            if backend == "interp":
                captured = capture(t)
                got = np.asarray(run(captured.graph, captured.inputs).values[0])
            else:
                got = f(Tensor(a), Tensor(b)).realize(backend=backend).numpy()
            assert got.dtype == a.dtype
            wrong = np.flatnonzero(bits(got) != want)
            assert not len(wrong), (backend, f.__name__, a[wrong[0]], b[wrong[0]], got[wrong[0]], len(wrong))


@pytest.mark.parametrize("d", DTYPES, ids=str)
def test_values_of_note_are_numpys_in_every_bit(d: np.dtype[Any]) -> None:
    check(*edges(d), "interp", "llvm", "c")


@pytest.mark.parametrize("d", DTYPES, ids=str)
def test_random_words_are_numpys_in_every_bit(d: np.dtype[Any]) -> None:
    check(*random_pairs(d, 20000), "interp", "llvm")


def test_every_float16_by_a_few_is_numpys() -> None:
    every = np.arange(2**16, dtype="u2").view("f2")
    for divisor in (0.1, -3, 6e-8, 65504, np.inf):
        check(every, np.full_like(every, divisor), "llvm")


@pytest.mark.parametrize(
    ("dtype", "a", "b", "mod", "floordiv"),
    [
        ("float32", 1e9, 7, 6, 142857136),
        ("float32", 5, np.inf, 5, 0),
        ("float32", -5, np.inf, np.inf, -1),
        ("float32", 0, -3, -0.0, -0.0),
        ("float64", 1, 0.1, 0.09999999999999995, 9),
        ("float64", -5, np.inf, np.inf, -1),
        ("float64", 1.7e308, 5e-324, 0, np.inf),
    ],
)
def test_what_a_rounded_quotient_does_not_tell(dtype: str, a: float, b: float, mod: float, floordiv: float) -> None:
    x, y = Tensor(np.array([a], dtype)), Tensor(np.array([b], dtype))
    assert [repr((x % y).item()), repr((x // y).item())] == [repr(float(mod)), repr(float(floordiv))]


def test_a_tiny_divisor_leaves_the_exact_rest() -> None:
    b = np.float32(1e-38)
    assert (Tensor([5.0]) % float(b)).item() == np.float32(5) % b
    assert (Tensor([5.0]) // float(b)).item() == np.inf


@pytest.mark.parametrize("name", OPERATORS)
def test_numbers_and_integers_are_promoted_as_for_every_operator(name: str) -> None:
    f, reference = OPERATORS[name]
    x, i = np.array([-7.5, 0.1, 1e9], "f4"), np.array([-7, 3, 1_000_000_001], "i4")
    h, one = np.array([9.75], "f2"), np.float32(1)
    cases = [
        (f(Tensor(x), 7), reference(x, np.float32(7))),
        (f(7, Tensor(x)), reference(np.float32(7), x)),
        (f(Tensor(x), True), reference(x, one)),
        (f(Tensor(i), 2.5), reference(i.astype("f4"), np.float32(2.5))),
        (f(2.5, Tensor(i)), reference(np.float32(2.5), i.astype("f4"))),
        (f(Tensor(x), Tensor(i)), reference(x, i.astype("f4"))),
        (f(Tensor(h), Tensor(x)), reference(h.astype("f4"), x)),
        (f(Tensor(h), 0.3), reference(h, np.float16(0.3))),
        (f(x, Tensor(i)), reference(x, i.astype("f4"))),
        (f(Tensor(x.reshape(3, 1)), Tensor(x)), reference(x.reshape(3, 1), x)),
    ]
    for got, want in cases:
        np.testing.assert_array_equal(got.numpy(), want)
        assert got.numpy().dtype == want.dtype
