"""Movement methods keep every bit and lie where NumPy puts them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from uops import Op, SpecError, Tensor
from uops.spec.ir.node import toposort

X = np.arange(24, dtype=np.int16).reshape(2, 3, 4)
F = np.array([[-0.0, np.nan], [1.5, -2.5]], np.float32)
EMPTY = np.zeros((2, 0, 3), np.float32)
Fn = Callable[..., Any]


def seven(x: Any) -> Any:
    return np.pad(x, ((0, 0), (0, 1), (1, 0)), constant_values=7)


# what is called on a Tensor of X, and what NumPy gives
# fmt: off
CASES: dict[str, tuple[Fn, Fn]] = {
    "reshape":        (lambda t: t.reshape(4, 6),                     lambda x: x.reshape(4, 6)),
    "reshape_tuple":  (lambda t: t.reshape((3, -1)),                  lambda x: x.reshape(3, -1)),
    "view":           (lambda t: t.view(24),                          lambda x: x.reshape(24)),
    "permute":        (lambda t: t.permute(2, 0, 1),                  lambda x: x.transpose(2, 0, 1)),
    "permute_back":   (lambda t: t.permute((-1, 1, 0)),               lambda x: x.transpose(2, 1, 0)),
    "transpose":      (lambda t: t.transpose(0, 2),                   lambda x: x.swapaxes(0, 2)),
    "T":              (lambda t: t.T,                                 lambda x: x.T),
    "expand":         (lambda t: t[:, :1].expand(-1, 5, -1),          lambda x: np.broadcast_to(x[:, :1], (2, 5, 4))),
    "expand_front":   (lambda t: t.expand(2, 2, 3, 4),                lambda x: np.broadcast_to(x, (2, 2, 3, 4))),
    "pad":            (lambda t: t.pad(((1, 0), None, (0, 2))),       lambda x: np.pad(x, ((1, 0), (0, 0), (0, 2)))),
    "pad_flat":       (lambda t: t.pad((1, 2, 0, 3)),                 lambda x: np.pad(x, ((0, 0), (0, 3), (1, 2)))),
    "pad_value":      (lambda t: t.pad((None, (0, 1), (1, 0)), 7),    seven),
    "pad_negative":   (lambda t: t.pad(((0, 0), (-1, 1), (0, -2))),   lambda x: np.pad(x[:, 1:, :2], ((0, 0), (0, 1), (0, 0)))),
    "shrink":         (lambda t: t.shrink(((1, 2), None, (1, 3))),    lambda x: x[1:2, :, 1:3]),
    "shrink_to":      (lambda t: t.shrink_to(1, None, 2),             lambda x: x[:1, :, :2]),
    "flip":           (lambda t: t.flip(1),                           lambda x: np.flip(x, 1)),
    "flip_all":       (lambda t: t.flip(),                            np.flip),
    "unsqueeze":      (lambda t: t.unsqueeze(-1),                     lambda x: x[..., None]),
    "squeeze":        (lambda t: t[:, :1].squeeze(1),                 lambda x: x[:, 0]),
    "squeeze_all":    (lambda t: t[:1, :1].squeeze(),                 lambda x: x[0, 0]),
    "squeeze_none":   (lambda t: t.squeeze(1),                        lambda x: x),
    "flatten":        (lambda t: t.flatten(1),                        lambda x: x.reshape(2, 12)),
    "unflatten":      (lambda t: t.unflatten(2, (2, -1)),             lambda x: x.reshape(2, 3, 2, 2)),
    "cat":            (lambda t: t.cat(t[:, :1], t, dim=1),           lambda x: np.concatenate([x, x[:, :1], x], 1)),
    "cat_empty":      (lambda t: t[:0].cat(t),                        lambda x: x),
    "stack":          (lambda t: t.stack(t, dim=-1),                  lambda x: np.stack([x, x], -1)),
    "repeat":         (lambda t: t.repeat(2, 1, 1, 3),                lambda x: np.tile(x, (2, 1, 1, 3))),
    "interleave":     (lambda t: t.repeat_interleave(2, 1),           lambda x: np.repeat(x, 2, 1)),
    "interleave_all": (lambda t: t.repeat_interleave(3),              lambda x: np.repeat(x, 3)),
    "roll":           (lambda t: t.roll(-1, 2).roll(2, 1),            lambda x: np.roll(np.roll(x, -1, 2), 2, 1)),
    "tril":           (lambda t: t.tril(),                            np.tril),
    "tril_above":     (lambda t: t.tril(1),                           lambda x: np.tril(x, 1)),
    "triu":           (lambda t: t.triu(-1),                          lambda x: np.triu(x, -1)),
    "contiguous":     (lambda t: t.T.contiguous(),                    lambda x: x.T),
    "detach":         (lambda t: t.detach(),                          lambda x: x),
    "bitcast":        (lambda t: t.bitcast("uint16"),                 lambda x: x.view(np.uint16)),
    "bitcast_narrow": (lambda t: t.bitcast("uint8"),                  lambda x: x.view(np.uint8)),
    "bitcast_wide":   (lambda t: t.bitcast("int32"),                  lambda x: x.view(np.int32)),
}
# fmt: on


@pytest.mark.parametrize("name", CASES)
def test_movement_is_numpys(name: str, agree: Any) -> None:
    method, reference = CASES[name]
    agree(method(Tensor(X)), reference(X), 0)


def test_the_padding_of_no_integer_dtype_promotes() -> None:
    for value, dtype in ((0, "int32"), (1, "int32"), (0.0, "float32"), (-0.0, "float32"), (1.0, "float32")):
        for amount in (0, 1):
            padded = Tensor([2, 3]).pad(((amount, 0),), value)
            assert (padded.dtype.name, padded.tolist()) == (dtype, [value] * amount + [2, 3])


@pytest.mark.parametrize("parts", [2, [1, 0, 2], 5])
def test_split_gives_numpys_parts(parts: Any, agree: Any) -> None:
    ends = np.cumsum(parts)[:-1] if isinstance(parts, list) else np.arange(parts, 3, parts)
    agree(list(Tensor(X).split(parts, 1)), np.split(X, ends, 1))


def test_chunk_makes_at_most_that_many() -> None:
    assert [t.shape for t in Tensor.zeros(7).chunk(3)] == [(3,), (3,), (1,)]
    assert [t.shape for t in Tensor.zeros(2).chunk(3)] == [(1,), (1,)]


def test_empty_tensors_move(agree: Any) -> None:
    assert Tensor.zeros(0, 6).unflatten(1, (-1, 2)).shape == (0, 3, 2)
    t = Tensor(EMPTY)
    agree(
        [t.reshape(3, 0), t.T, t.expand(2, 2, 0, 3), t.flip(1), t.cat(t, dim=1), t.pad(((0, 0), (0, 1), (0, 0)))],
        [EMPTY.reshape(3, 0), EMPTY.T, np.zeros((2, 2, 0, 3), "f"), EMPTY, EMPTY, np.zeros((2, 1, 3), "f")],
    )


def test_joins_keep_every_bit(agree: Any) -> None:
    """No join adds or multiplies: the sign of zero and NaN survive."""
    t = Tensor(F)
    joined = t.cat(t.flip(0), dim=0)
    agree(
        [joined.bitcast("uint32"), t.stack(t).bitcast("uint32")],
        [np.concatenate([F, F[::-1]]).view("u4"), np.stack([F, F]).view("u4")],
    )
    assert not {u.op for u in toposort(joined.uop)} & {Op.ADD, Op.MUL}


def test_joins_promote() -> None:
    assert Tensor([1]).cat(Tensor([1.5])).tolist() == [1.0, 1.5]


@pytest.mark.parametrize("join", [Tensor.cat, Tensor.stack])
def test_joins_cast_each_tensor_once(join: Fn) -> None:
    """A cast through fp8e5m2, to which the first two promote, would give infinity for the second."""
    tensors = Tensor([1.0], dtype="fp8e5m2"), Tensor([2**24 + 4], dtype="int32"), Tensor([0.5])
    assert join(*tensors).numpy().reshape(-1).tolist() == [1.0, 2.0**24 + 4, 0.5]
    assert Tensor([1]).stack(Tensor([True])).dtype.name == "int32"


def test_a_reshape_of_a_reshape_is_one_node() -> None:
    t = (Tensor([[1.0, 2.0]]) + 1).reshape(2).reshape(2, 1).reshape(1, 1, 2)
    assert [u.op for u in toposort(t.uop)].count(Op.RESHAPE) == 2  # this and the leaf's


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda t: t.reshape(5, 5), r"Tensor.reshape: \(2, 3, 4\) has 24 elements, \(5, 5\) has 25 \[RESHAPE.C2: prod"),
        (lambda t: t.reshape(-1, 7), r"cannot infer -1 in \(-1, 7\) for \(2, 3, 4\) \(R49\) \[RESHAPE.C2"),
        (lambda t: t.reshape(-2, -3, 4), r"expected extents of at least 0, got .* \[RESHAPE.C4"),
        (
            lambda t: t[:0].unflatten(2, (5, 5)),
            r"Tensor.unflatten: expected sizes whose product is 4, .* got \(5, 5\) \[RESHAPE.C2",
        ),
        (lambda t: t.unflatten(2, (-1, 3)), r"Tensor.unflatten: cannot infer -1 in \(-1, 3\) for \(4,\) \(R49\) \[RESHAPE.C2"),
        (lambda t: t.permute(0, 1), r"Tensor.permute: expected each axis of shape \(2, 3, 4\) once, got \(0, 1\) \[PERMUTE.C2"),
        (lambda t: t.permute(0, 0, 1), r"\[PERMUTE.C2"),
        (lambda t: t.expand(2, 5, 4), r"Tensor.expand: shape \(2, 3, 4\) does not broadcast to \(2, 5, 4\) \[EXPAND.C2"),
        (lambda t: t.expand(4), r"\[EXPAND.C4"),
        (
            lambda t: t[:, :1].expand(2, -2, 4),
            r"Tensor.expand: expected extents of at least 0, got \(2, -2, 4\) \[EXPAND.C5",
        ),
        (lambda t: t.expand(-3, 2, 3, 4), r"Tensor.expand: expected extents of at least 0, got \(-3, 2, 3, 4\) \[EXPAND.C5"),
        (
            lambda t: t.shrink(((0, 3), None, None)),
            r"Tensor.shrink: expected bounds inside shape \(2, 3, 4\), got \[\(0, 3\), .*\] \[SHRINK.C2",
        ),
        (lambda t: t.pad(((1, 1),)), r"Tensor.pad: expected 3 pairs for shape \(2, 3, 4\), got 1 \[PAD.C5"),
        (lambda t: t.flip(3), r"Tensor.flip: axis 3 is out of range for shape \(2, 3, 4\) \[FLIP.C2"),
        (lambda t: t.flip(0, 0), r"Tensor.flip: expected distinct axes of shape \(2, 3, 4\), got \(0, 0\)"),
        (lambda t: t.flip((1, -2)), r"Tensor.flip: expected distinct axes of shape \(2, 3, 4\), got \(1, -2\)"),
        (lambda t: t.sum().flatten(1), r"Tensor.flatten: axis 1 is out of range for shape \(\)"),
        (lambda t: t.flatten(2, 1), r"Tensor.flatten: expected start_dim before end_dim, got 2 and 1 for shape \(2, 3, 4\)"),
        (lambda t: t.cat([t]), r"Tensor.cat: expected Tensors, got list"),
        (lambda t: t.stack(None), r"Tensor.stack: expected Tensors, got NoneType"),
        (lambda t: t.cat(t[0]), r"Tensor.cat: expected equal shapes except along axis 0, got \(2, 3, 4\), \(3, 4\) \[STACK.C3"),
        (lambda t: t.stack(t[0]), r"\[STACK.C3"),
        (lambda t: t.split([1, 1], 1), r"expected sizes that sum to 3"),
        (lambda t: t.bitcast("bool"), r"\[BITCAST.C2"),
        (lambda t: t[:, :, :3].bitcast("int32"), r"\[BITCAST.C4"),
        (lambda t: len(t[0, 0, 0]), "expected at least one axis"),
    ],
)
def test_mistakes_name_the_claim_and_the_shapes(call: Fn, message: str) -> None:
    with pytest.raises(SpecError, match=message):
        call(Tensor(X))


_N = np.int64
INTEGERS: dict[str, tuple[Fn, Fn]] = {
    "full": (lambda: Tensor.full(_N(3), 1), lambda: np.full(3, 1)),
    "zeros": (lambda: Tensor.zeros(_N(2), np.uint8(3)), lambda: np.zeros((2, 3))),
    "arange": (lambda: Tensor.arange(_N(2), _N(9), np.int8(3)), lambda: np.arange(2, 9, 3)),
    "linspace": (lambda: Tensor.linspace(_N(0), np.float64(1), _N(3)), lambda: np.linspace(0, 1, 3)),
    "fraction": (lambda: Tensor.full(2, np.float32(1.5)), lambda: np.full(2, 1.5)),
    "eye": (lambda: Tensor.eye(_N(2), _N(3)), lambda: np.eye(2, 3)),
    "pad": (lambda: Tensor(X).pad([_N(1), _N(2)]), lambda: np.pad(X, ((0, 0), (0, 0), (1, 2)))),
    "pad with": (lambda: Tensor(F).pad([_N(0), _N(1)], np.float32(7)), lambda: np.pad(F, ((0, 0), (0, 1)), constant_values=7)),
    "pairs": (lambda: Tensor(X).pad([(_N(1), 0), None, None]), lambda: np.pad(X, ((1, 0), (0, 0), (0, 0)))),
    "shrink": (lambda: Tensor(X).shrink([None, (_N(1), _N(3)), None]), lambda: X[:, 1:3]),
    "reshape": (lambda: Tensor(X).reshape(_N(4), _N(-1)), lambda: X.reshape(4, -1)),
    "split": (lambda: Tensor(X).split(_N(2), _N(1))[1], lambda: X[:, 2:]),
    "unsqueeze": (lambda: Tensor(X).unsqueeze(_N(1)), lambda: X[:, None]),
    "windows": (lambda: Tensor(X).max_pool2d(_N(2), _N(1))[0, 0, 0], lambda: X[0, :2, :2].max()),
}


@pytest.mark.parametrize("case", INTEGERS)
def test_numpy_integers_are_sizes_and_amounts(case: str) -> None:
    ours, numpys = INTEGERS[case]
    np.testing.assert_array_equal(ours().numpy(), numpys())


@pytest.mark.parametrize(
    "call",
    [
        lambda: Tensor(X).reshape(24.0),
        lambda: Tensor(X).reshape(None, 24),
        lambda: Tensor.zeros(2.0),
        lambda: Tensor.full(2.5, 1),
        lambda: Tensor.eye(2.5),
        lambda: Tensor.linspace(0, 1, 2.5),
        lambda: Tensor(X).pad([(1.5, 0), None, None]),
        lambda: Tensor(X).shrink([(0, 1.5), None, None]),
        lambda: Tensor(X).split(1.5),
        lambda: Tensor(X).unsqueeze(0.5),
        lambda: Tensor(X).roll(0.5, 0),
        lambda: Tensor(X).max_pool2d(2.0),
    ],
)
def test_a_fraction_is_no_size_and_no_amount(call: Fn) -> None:
    with pytest.raises(SpecError, match=r"expected an integer for a size, axis or amount, got (\d+\.\d|None)"):
        call()


def test_a_repeat_splits_no_axis_that_it_leaves() -> None:
    many = Tensor(np.arange(4).reshape((4,) + (1,) * 39))
    assert many.repeat(2, *(1,) * 39).flatten().tolist() == [0, 1, 2, 3] * 2
