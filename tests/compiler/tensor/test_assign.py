"""Assignment: Store and After; later reads see it, nodes made before keep the values of their time, memory given is untouched."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from uops import Op, SpecError, Tensor
from uops.backends.registry import create_backend
from uops.compiler import Config, compile
from uops.compiler.tensor.realize import capture
from uops.spec.ir.node import toposort

X = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
#: Keys that name each element once.
KEYS: dict[str, Any] = {
    "integer": 1,
    "element": (0, 1, 2),
    "slice": (slice(None), slice(1, 3)),
    "step": (..., slice(None, None, 2)),
    "step_of_an_odd_axis": (slice(None), slice(None, None, 2)),
    "steps_in_reverse": (0, slice(None, None, -2), slice(3, None, -3)),
    "reverse": (..., slice(None, None, -1)),
    "new_axis": (None, 0),
    "all": ...,
    "empty": slice(0, 0),
}


@pytest.mark.parametrize("name", KEYS)
def test_assignment_to_a_part_is_numpys(name: str, agree: Any, data: Any) -> None:
    key, want = KEYS[name], X.copy()
    value = data(*want[key].shape)
    want[key] = value
    t = Tensor(X)
    t[key] = value
    agree([t, t.sum(), t[0] + 1], [want, want.sum(), want[0] + 1], 8)


def test_a_value_is_broadcast_and_a_number_weak(agree: Any) -> None:
    want = X.copy()
    want[:, 1] = np.arange(4)
    want[1, 2, 3] = 7
    t = Tensor(X)
    t[:, 1] = Tensor(np.arange(4, dtype=np.float32))
    t[1, 2, 3] = 7
    agree(t, want, 0)


def test_assign_replaces_the_whole_and_returns_the_tensor(agree: Any) -> None:
    t = Tensor(X)
    assert t.assign(t.flip(0) * 2) is t
    agree(t, X[::-1] * 2, 0)
    u = Tensor.zeros(2, 2)
    u.assign(1)
    agree(u, np.ones((2, 2), np.float32), 0)


def test_assign_is_a_store_and_after() -> None:
    t = Tensor(X)
    t[0] = 1
    assert {Op.STORE, Op.AFTER} <= {u.op for u in toposort(t.uop)}


def test_nodes_made_before_keep_the_values_of_their_time(agree: Any) -> None:
    """In one program, too: no read of the old contents races with the write."""
    t = Tensor(X)
    before, view = t + 1, t[0]
    t[0] = 5
    between = t * 2
    t[1] = 6
    want = X.copy()
    want[0] = 5
    middle = want * 2
    want[1] = 6
    agree([before, view, between, t], [X + 1, X[0], middle, want], 0)


def test_a_value_may_read_what_it_replaces(agree: Any) -> None:
    t, want = Tensor(X), X.copy()
    t[0] = t[0] + t[1]
    t[:, :, 1:] = t[:, :, :-1]
    want[0] = want[0] + want[1]
    want[:, :, 1:] = want[:, :, :-1].copy()
    agree(t, want, 0)


@pytest.mark.parametrize(
    "view",
    [lambda t: t.reshape(6, 4)[1], lambda t: t.T, lambda t: t.flip(1)[0], lambda t: t[0][1], lambda t: t.permute(1, 0, 2)[2, 1:]],
)
def test_assignment_through_a_view_reaches_its_tensor(view: Callable[[Any], Any], agree: Any) -> None:
    want = X.copy()
    t = Tensor(X)
    part = view(t)
    part.assign(part * 10)
    for k, v in enumerate(X.ravel()):
        if v in set(view(Tensor(X)).numpy().ravel().tolist()):
            want.ravel()[k] = v * 10
    agree([t, part], [want, view(Tensor(want)).numpy()], 0)


def test_lazy_and_realized_tensors_are_assigned_alike(agree: Any) -> None:
    for t in (Tensor(X) * 1, (Tensor(X) * 1).realize()):
        t[0, 0] = 9
        t.realize()
        t[0, 1] = 8
        want = X.copy()
        want[0, 0], want[0, 1] = 9, 8
        agree(t, want, 0)


def test_tensor_indices_name_the_elements_written(agree: Any) -> None:
    want = X.copy()
    want[:, [2, 0]] = -1
    t = Tensor(X)
    t[:, Tensor([2, 0])] = -1
    agree(t, want, 0)


#: (shape, the key of an array or Tensor of indices, extent): indices that name elements several times.
REPEATED: dict[str, tuple[tuple[int, ...], Callable[[Any], Any], int]] = {
    "elements": ((50,), lambda i: i, 50),
    "rows": ((6, 40), lambda i: i, 6),
    "columns": ((40, 6), lambda i: (slice(None), i), 6),
    "middle_axis": ((3, 5, 17), lambda i: (slice(None), i), 5),
    "every_other_row": ((8, 12), lambda i: (slice(None, None, 2), i), 12),
    "pairs": ((9, 7), lambda i: (i, i), 7),
    "of_one": ((1, 3), lambda i: i, 1),
}


@pytest.mark.parametrize("backend", ["llvm", "c", "interp"])
@pytest.mark.parametrize("name", REPEATED)
def test_the_last_of_several_values_for_one_element_stays(name: str, backend: str, data: Any) -> None:
    """R164, of data and of computed indices, from the end too, in one program and after another assignment."""
    shape, key, extent = REPEATED[name]
    for count in (2, 7, 64, 300):
        i = data(count, dtype="int32", low=-extent, high=extent)
        i = np.where(i < -extent, 0, i)
        want = data(*shape)
        t, before = Tensor(want), want.copy()
        value = data(*want[key(i)].shape)
        want[key(i)] = value
        for index, new in ((Tensor(i), Tensor(value)), (Tensor(i) * 2 - Tensor(i), Tensor(value) * 1)):
            t = Tensor(before)
            t[key(index)] = new
            assert np.array_equal(t.realize(backend=backend).numpy(), want)
        want[key(i[::-1])] = 7
        t[key(Tensor(i).flip(0))] = 7
        assert np.array_equal(t.realize(backend=backend).numpy(), want)


def test_no_schedule_changes_which_value_stays(data: Any) -> None:
    """R158: with threads, without a schedule, and by schedules that are drawn."""
    i = (np.arange(1000) * 7919 % 61).astype(np.int32)
    value, want = data(1000, 33), data(61, 33)
    t = Tensor(want)
    t[Tensor(i)] = Tensor(value)
    want[i] = value
    graph, inputs = capture(t)
    target: Any = create_backend("llvm").target  # type: ignore[attr-defined]
    for config in (Config(threads=2), Config(optimize=False), *(Config(forced=k) for k in range(8))):
        assert np.array_equal(compile(graph, target, config)(inputs).values[0], want)


def test_constant_indices_may_repeat(agree: Any) -> None:
    t, want = Tensor(X), X.copy()
    t[Tensor.stack(*(Tensor(k, dtype="uint32") for k in (1, 0, 1)))] = np.arange(36, dtype=np.float32).reshape(3, 3, 4)
    want[[1, 0, 1]] = np.arange(36, dtype=np.float32).reshape(3, 3, 4)
    agree(t, want, 0)


def test_memory_given_is_never_written() -> None:
    x = X.copy()
    t = Tensor.from_numpy(x)
    t[0] = 100
    t.realize()
    assert x.tolist() == X.tolist()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda t: t.assign(np.zeros((2, 2), np.float32)),
            r"Tensor.assign: shape \(2, 2\) does not broadcast to \(2, 3, 4\) \[STORE.C4",
        ),
        (lambda t: t[0].assign(np.zeros(4)), r"expected a value of float32, got float64; cast it first \[STORE.C3"),
        (lambda t: t.int().assign(1.5), r"expected a value of int32, got float32"),
        (lambda t: t.expand(2, 2, 3, 4)[0].assign(0), r"a view with padding or repetition, of shape .* \[STORE.C2"),
    ],
)
def test_mistakes_name_the_claim(call: Callable[[Any], Any], message: str) -> None:
    with pytest.raises(SpecError, match=message):
        call(Tensor(X))


def test_a_view_of_a_view_updates_every_tensor_in_use(agree: Any) -> None:
    x = Tensor(X)
    rows = x.reshape(6, 4)
    row = rows[2]
    row[1:3] = -1
    want = X.copy()
    want.reshape(6, 4)[2, 1:3] = -1
    agree([x, rows, row], [want, want.reshape(6, 4), want.reshape(6, 4)[2]], 0)


def test_a_view_whose_tensor_is_gone_stands_for_itself(agree: Any) -> None:
    rows = Tensor(X).reshape(6, 4)
    rows[0] = 1
    made = Tensor.zeros(2, 3)
    made[1] = 5
    want = X.copy().reshape(6, 4)
    want[0] = 1
    agree([rows, made], [want, np.array([[0, 0, 0], [5, 5, 5]], np.float32)], 0)


def test_a_realized_view_still_writes_through(agree: Any) -> None:
    x = Tensor(X)
    part = x[0, 1].realize()
    part.assign(3)
    want = X.copy()
    want[0, 1] = 3
    agree([x, part], [want, want[0, 1]], 0)


def test_views_do_not_keep_their_tensors_alive() -> None:
    t = Tensor(X)
    part = t[0].realize()
    seen = weakref.ref(t)
    del t
    assert seen() is None and part.tolist() == X[0].tolist()


@pytest.mark.parametrize(
    "same",
    [
        lambda t: t.reshape(2, 3, 4),
        lambda t: t.permute(0, 1, 2),
        lambda t: t.expand(2, -1, 4),
        lambda t: t.shrink_to(2, 3, 4),
        lambda t: t.pad((0, 0)),
        lambda t: t[:],
        lambda t: t.cast("float32"),
        lambda t: t.bitcast("float32"),
        lambda t: t.roll(0, 1),
        lambda t: t.max(()),
        lambda t: t.transpose(1, 1),
        lambda t: t.repeat(1, 1, 1),
    ],
)
def test_a_method_that_changes_nothing_gives_another_tensor(same: Callable[[Any], Any]) -> None:
    t = Tensor(X)
    old = same(t)
    t[0] = 7
    assert old.tolist() == X.tolist()


def test_a_view_of_everything_writes_through_and_a_copy_does_not() -> None:
    t = Tensor(X)
    t[:].assign(1)
    t.cast("float32").assign(2)
    assert t.tolist() == np.ones_like(X).tolist()


def buffers(t: Tensor) -> int:
    return sum(u.op is Op.BUFFER for u in toposort(capture(t).graph))


def test_assignments_in_a_row_share_one_copy(agree: Any) -> None:
    t, want = Tensor(X), X.copy()
    for k in range(4):
        t[k % 2, k % 3] = t[(k + 1) % 2, k % 3] + k
        want[k % 2, k % 3] = want[(k + 1) % 2, k % 3] + k
    assert buffers(t) == 1
    agree(t, want, 0)


def test_a_version_that_is_read_later_keeps_its_memory(agree: Any) -> None:
    t = Tensor(X)
    t[0] = 5
    between = t * 2
    t[1] = 6
    both = t + between
    assert buffers(both) == 2
    want = X.copy()
    want[0] = 5
    middle = want * 2
    want[1] = 6
    agree([both, t], [want + middle, want], 0)


def test_a_version_that_is_a_result_keeps_its_memory(agree: Any) -> None:
    t = Tensor(X)
    t[0] = 5
    first = Tensor.of(t.uop)
    t[0, 1] = 6
    want = X.copy()
    want[0] = 5
    last = want.copy()
    last[0, 1] = 6
    agree([t, first], [last, want], 0)


def test_assigned_values_read_what_the_shared_memory_held_before(agree: Any) -> None:
    """Reversed rows, then a shift of all: overlapping reads and writes of the one copy."""
    t, want = Tensor(X), X.copy()
    t[0] = t[0].flip(0, 1)
    want[0] = want[0][::-1, ::-1]
    t[:, 1:] = t[:, :-1] + t[:, 1:].sum()
    want[:, 1:] = want[:, :-1].copy() + want[:, 1:].sum()
    t[1, :, ::2] = t[0, :, 1::2] * t.max()
    want[1, :, ::2] = want[0, :, 1::2] * want.max()
    assert buffers(t) == 1
    agree(t, want, 1e-5)
