"""Creation: constants and sequences are NumPy's, random numbers are Threefry's and lie where they should."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from uops import SpecError, Tensor
from uops.compiler.tensor import capture

Fn = Callable[..., Any]

# fmt: off
SEQUENCES: dict[str, tuple[Fn, Any]] = {
    "arange":          (lambda: Tensor.arange(7),                        np.arange(7, dtype="i4")),
    "arange_from":     (lambda: Tensor.arange(2, 9),                     np.arange(2, 9, dtype="i4")),
    "arange_step":     (lambda: Tensor.arange(10, 0, -3),                np.arange(10, 0, -3, dtype="i4")),
    "arange_float":    (lambda: Tensor.arange(0.0, 1.0, 0.25),           np.arange(0, 1, .25, "f4")),
    "arange_cast":     (lambda: Tensor.arange(5, dtype="float64"),       np.arange(5, dtype="f8")),
    "arange_long":     (lambda: Tensor.arange(4, dtype="int64"),         np.arange(4, dtype="i8")),
    "arange_byte":     (lambda: Tensor.arange(4, dtype="uint8"),         np.arange(4, dtype="u1")),
    "arange_beyond":   (lambda: Tensor.arange(2**31 - 2, 2**31 + 1),     np.arange(2**31 - 2, 2**31 + 1)),
    "arange_below":    (lambda: Tensor.arange(-2**35, 2**35, 2**35),     np.array([-2**35, 0])),
    "arange_long_step": (lambda: Tensor.arange(-2**63, 2**63, 2**63),    np.array([-2**63, 0])),
    "arange_unsigned": (lambda: Tensor.arange(2**64 - 1, 0, -2**63),     np.array([2**64 - 1, 2**63 - 1], "u8")),
    "arange_precise":  (lambda: Tensor.arange(2**62, 2**62 + 2),         np.array([2**62, 2**62 + 1])),
    "arange_to_float": (lambda: Tensor.arange(0, 5.5),                   np.arange(0, 5.5, dtype="f4")),
    "arange_float_end": (lambda: Tensor.arange(3.5),                     np.arange(3.5, dtype="f4")),
    "arange_float_step": (lambda: Tensor.arange(0, 4, 1.5),              np.arange(0, 4, 1.5, dtype="f4")),
    "arange_fractions": (lambda: Tensor.arange(0.5, 5, dtype="int32"),   np.arange(0.5, 5, dtype="i4")),
    "arange_no_step":  (lambda: Tensor.arange(1, 4, 0.5, dtype="int8"),  np.arange(1, 4, 0.5, dtype="i1")),
    "arange_far":      (lambda: Tensor.arange(16777217.0, 16777219, dtype="int32"), np.arange(16777217, 16777219, dtype="i4")),
    "arange_last":     (lambda: Tensor.arange(128, dtype="int8"),        np.arange(128, dtype="i1")),
    "arange_least":    (lambda: Tensor.arange(-128, 128, dtype="int8"),  np.arange(-128, 128, dtype="i1")),
    "arange_none":     (lambda: Tensor.arange(-1, dtype="uint8"),        np.arange(-1, dtype="u1")),
    "arange_bool":     (lambda: Tensor.arange(2, dtype="bool"),          np.arange(2, dtype="?")),
    "arange_one_step": (lambda: Tensor.arange(0, 1, 1e39),               np.zeros(1, "f4")),
    "arange_one_half": (lambda: Tensor.arange(2, 3, 1e39, dtype="float16"), np.full(1, 2, "f2")),
    "arange_to_inf":   (lambda: Tensor.arange(0.0, 3e39, 1e39),          np.array([0, np.inf, np.inf], "f4")),
    "arange_from_inf": (lambda: Tensor.arange(-5e38, 2e38, 3e38),        np.array([-np.inf, -2e38, 1e38], "f4")),
    "arange_span":     (lambda: Tensor.arange(-3e38, 3.5e38, 3e38),      np.array([-3e38, 0, 3e38], "f4")),
    "arange_empty":    (lambda: Tensor.arange(3, 1),                     np.arange(0, dtype="i4")),
    "linspace":        (lambda: Tensor.linspace(-1, 1, 5),               np.linspace(-1, 1, 5, dtype="f4")),
    "linspace_whole":  (lambda: Tensor.linspace(-1, 1, 4, dtype="int32"), np.linspace(-1, 1, 4, dtype="i4")),
    "linspace_far":    (lambda: Tensor.linspace(2**24 + 1, 2**25, 2, dtype="int32"), np.array([2**24 + 1, 2**25], "i4")),
    "linspace_one":    (lambda: Tensor.linspace(3, 4, 1),                np.array([3], "f4")),
    "full":            (lambda: Tensor.full((2, 3), 4),                  np.full((2, 3), 4, "i4")),
    "full_bool":       (lambda: Tensor.full(2, True),                    np.full(2, True)),
    "full_typed":      (lambda: Tensor.full((), 2.5, "float16"),         np.full((), 2.5, "f2")),
    "zeros":           (lambda: Tensor.zeros(2, 0, 3),                   np.zeros((2, 0, 3), "f4")),
    "ones":            (lambda: Tensor.ones((2, 2), dtype="int8"),       np.ones((2, 2), "i1")),
    "zeros_like":      (lambda: Tensor([[1, 2]]).zeros_like(),           np.zeros((1, 2), "i4")),
    "ones_like":       (lambda: Tensor([1]).ones_like(dtype="float32"),  np.ones(1, "f4")),
    "full_like":       (lambda: Tensor([1.0]).full_like(7),              np.full(1, 7, "f4")),
    "eye":             (lambda: Tensor.eye(3),                           np.eye(3, dtype="f4")),
    "eye_wide":        (lambda: Tensor.eye(2, 4),                        np.eye(2, 4, dtype="f4")),
    "eye_tall":        (lambda: Tensor.eye(4, 2, dtype="int32"),         np.eye(4, 2, dtype="i4")),
    "eye_empty":       (lambda: Tensor.eye(0, 2),                        np.eye(0, 2, dtype="f4")),
}
# fmt: on


@pytest.mark.parametrize("name", SEQUENCES)
def test_sequences_are_numpys(name: str, agree: Any) -> None:
    made, want = SEQUENCES[name]
    assert made().dtype.name == want.dtype.name
    agree(made(), want, 1)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_linspace_ends_at_its_end(dtype: str) -> None:
    for n in (2, 50, 99):
        assert Tensor.linspace(0.1, 1.3, n, dtype=dtype).numpy()[-1] == np.dtype(dtype).type(1.3)
        assert Tensor.linspace(0, 1, n, dtype=dtype).numpy()[-1] == 1


def words(seed: int, first: int, count: int) -> Any:
    """Threefry2x32 with 20 rounds on NumPy's integers (Salmon et al. 2011): 64-bit results of successive counters."""
    counter = (np.arange(count, dtype=np.uint64) + np.uint64(first)).view(np.uint32).reshape(-1, 2)
    x0, x1 = counter[:, 0].copy(), counter[:, 1].copy()
    k = [np.uint32(seed & 0xFFFFFFFF), np.uint32(seed >> 32)]
    k.append(k[0] ^ k[1] ^ np.uint32(0x1BD11BDA))
    rotations = (13, 15, 26, 6, 17, 29, 16, 24)
    x0, x1 = x0 + k[0], x1 + k[1]
    for r in range(20):
        x0 = x0 + x1
        s = np.uint32(rotations[r % 8])
        x1 = (x1 << s | x1 >> (np.uint32(32) - s)) ^ x0
        if r % 4 == 3:
            j = r // 4 + 1
            x0, x1 = x0 + k[j % 3], x1 + k[(j + 1) % 3] + np.uint32(j)
    return np.stack([x0, x1], 1).reshape(-1)


def test_rand_is_the_top_bits_of_threefry(agree: Any) -> None:
    Tensor.manual_seed(12345678901)
    first, second = Tensor.rand(3, 3), Tensor.rand(4, dtype="float16")
    bits = words(12345678901, 0, 5), words(12345678901, 5, 2)
    agree(first, ((bits[0][:9] >> 8) * np.float32(2**-24)).astype("f4").reshape(3, 3), 0)
    agree(second, ((bits[1][:4] >> 21) * np.float32(2**-11)).astype("f2"), 0)


def test_equal_seeds_give_equal_numbers_and_calls_differ() -> None:
    Tensor.manual_seed(1)
    a, b = Tensor.rand(8), Tensor.rand(8)
    Tensor.manual_seed(1)
    again = Tensor.rand(8)
    assert a.tolist() == again.tolist() != b.tolist()


def test_calls_of_one_shape_have_one_graph() -> None:
    assert capture(Tensor.rand(5)).graph is capture(Tensor.rand(5)).graph


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_rand_lies_in_its_interval_and_fills_it(dtype: str) -> None:
    Tensor.manual_seed(3)
    x = Tensor.rand(400, dtype=dtype).numpy().astype("f8")
    assert 0 <= x.min() < 0.02 and 0.98 < x.max() < 1
    assert abs(x.mean() - 0.5) < 4 / np.sqrt(12 * 400)


def test_normal_uniform_and_integer_numbers_have_their_moments() -> None:
    Tensor.manual_seed(4)
    n = Tensor.randn(500).numpy()
    assert abs(n.mean()) < 0.2 and abs(n.std() - 1) < 0.2 and np.isfinite(n).all()
    u = Tensor.uniform(200, low=-3, high=-1).numpy()
    assert -3 <= u.min() < -2.9 and -1.1 < u.max() <= -1
    i = Tensor.randint(300, low=-2, high=3).numpy()
    assert set(i.tolist()) == {-2, -1, 0, 1, 2} and i.dtype == np.int32


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: Tensor.rand(2, dtype="int32"), "expected a float dtype, got int32"),
        (lambda: Tensor.randint(2, low=3, high=3), "got low 3 and high 3"),
        (lambda: Tensor.arange(1, 2, 0), "expected a step other than 0"),
        (lambda: Tensor.arange(math.inf), "expected finite ends and steps, got 0 to inf by 1"),
        (lambda: Tensor.arange(math.nan), "expected finite ends and steps, got 0 to nan by 1"),
        (lambda: Tensor.arange(0, 5, math.inf), "expected finite ends and steps, got 0 to 5 by inf"),
        (lambda: Tensor.arange(1e308, 1.7e308, 1e308, dtype="int64"), "expected a value of int64, .* got <integer of 1024 bits>"),
        (lambda: Tensor.arange(0, 1e308, 1e-300), "expected finite ends and steps"),
        (lambda: Tensor.arange(-1, 2**63 + 2, 2**63 + 1), r"no integer dtype holds -1 to 9223372036854775808 \[CONST.C2"),
        (
            lambda: Tensor.arange(129, dtype="int8"),
            r"Tensor.arange: expected a value of int8, from -128 to 127, got 128 \[CONST.C2",
        ),
        (lambda: Tensor.arange(2**40, 2**40 + 2, dtype="uint8"), "expected a value of uint8"),
        (lambda: Tensor.arange(-3, 3, dtype="uint8"), "expected a value of uint8, .* got -3"),
        (lambda: Tensor.arange(3, dtype="bool"), "expected at most 2 values of bool, got 3"),
        (lambda: Tensor.arange(10**400, 10**400 + 2, dtype="float32"), "expected a number that a float can hold"),
        (lambda: Tensor.linspace(0, 1, 5, dtype="bool"), "Tensor.linspace: expected a numeric dtype, got bool"),
        (lambda: Tensor.full(3, 300, dtype="int8"), r"Tensor.full: expected a value of int8, from -128 to 127, got 300 \[CONST.C2"),
        (lambda: Tensor.full(3, math.nan, dtype="int8"), "Tensor.full: expected a value of int8, from .*, got nan"),
        (lambda: Tensor.full(3, -1.5, dtype="uint8"), "Tensor.full: expected a value of uint8, from .*, got -1.5"),
        (lambda: Tensor([1, 2]).full_like(2**31), "Tensor.full_like: expected a value of int32, from .*, got 2147483648"),
        (lambda: Tensor.full((2, -1), 0), r"Tensor.full: expected extents of at least 0, got \(2, -1\) \[EXPAND.C5"),
        (lambda: Tensor.zeros(1, dtype="complex64"), "'complex64' is not a dtype of a Tensor"),
    ],
)
def test_mistakes_are_named(call: Fn, message: str) -> None:
    with pytest.raises(SpecError, match=message):
        call()


@pytest.mark.parametrize(
    ("start", "stop", "dtype"), [(0, 1000, "int8"), (0, 3e9, "int32"), (-5, 5, "uint8"), (0, float("nan"), "int32")]
)
def test_linspace_of_an_integer_dtype_that_lacks_an_end_is_an_error(start, stop, dtype):
    with pytest.raises(ValueError, match=r"Tensor\.linspace: expected values in the range of"):
        Tensor.linspace(start, stop, 3, dtype=dtype)
    assert Tensor.linspace(0, 2**64 - 1, 2, dtype="uint64").tolist() == [0, 2**64 - 1]
    assert Tensor.linspace(5, 1000, 1, dtype="int8").tolist() == [5]
