"""Indices that are data are in range, or realizing raises IndexError on every backend of ours (R163)."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from uops import SpecError, Tensor, Trap, function, use
from uops.compiler.tensor import capture, realize
from uops.compiler.tensor.checks import UNCHECKED
from uops.spec.errors import SpecIndexError
from uops.spec.ir.node import UOp, toposort
from uops.spec.ir.ops import Op

X = np.arange(12, dtype=np.float32).reshape(3, 4)
BACKENDS = ("llvm", "c", "interp")
Make = Callable[[Tensor, Tensor], Tensor]

#: Method -> (of a (3, 4) Tensor and one index, axis and extent that the index names, the same on arrays).
# fmt: off
METHODS: dict[str, tuple[Make, str, int, Callable[[Any, Any], Any]]] = {
    "rows":      (lambda t, i: t[i],                                  "__getitem__: {} axis 0",             3,
                  lambda a, i: a[i]),
    "columns":   (lambda t, i: t[1:, i],                              "__getitem__: {} axis 1",             4,
                  lambda a, i: a[1:, i]),
    "beside_an_integer": (lambda t, i: t[None, 2, i],                 "__getitem__: {} axis 1",             4,
                  lambda a, i: a[None, 2, i]),
    "first_of_a_pair": (lambda t, i: t[i, [1]],                       "__getitem__: {} axis 0",             3,
                  lambda a, i: a[i, [1]]),
    "second_of_a_pair": (lambda t, i: t[[1], i],                      "__getitem__: {} axis 1",             4,
                  lambda a, i: a[[1], i]),
    "take":      (lambda t, i: t.take(i, 1),                          "take: {} axis 1",                    4,
                  lambda a, i: a.take(i, 1)),
    "take_flat": (lambda t, i: t.take(i),                             "take: {} the flattened Tensor",     12,
                  lambda a, i: a.take(i)),
    "gather":    (lambda t, i: t.gather(0, i.reshape(1, 1)),          "gather: {} axis 0",                  3,
                  lambda a, i: np.take_along_axis(a[:, :1], i.reshape(1, 1), 0)),
    "gather_last": (lambda t, i: t.gather(-1, i.reshape(1, 1)),       "gather: {} axis 1",                  4,
                  lambda a, i: np.take_along_axis(a[:1], i.reshape(1, 1), 1)),
    "assigned":  (lambda t, i: _assigned(t, i),                       "__setitem__: {} axis 0",             3,
                  lambda a, i: _assigned(a.copy(), i)),
    "assigned_to_a_pair": (lambda t, i: _assigned(t, (slice(1), i)),  "__setitem__: {} axis 1",             4,
                  lambda a, i: _assigned(a.copy(), (slice(1), i))),
}
# fmt: on

#: Where the values of an index come from: data, data that are moved or cast, memory of somebody else, a computation, a call.
INDICES: dict[str, Callable[[Any], Tensor]] = {
    "data": lambda a: Tensor(a),
    "shared": lambda a: Tensor.from_numpy(a),
    "cast": lambda a: Tensor(a).cast("int16").flip(0),
    "realized": lambda a: (Tensor(a) * 1).realize(),
    "computed": lambda a: Tensor(a) * 2 - Tensor(a),
    "called": lambda a: function(lambda i: i + 0)(Tensor(a)),
}


def _assigned(t: Any, key: Any) -> Any:
    t[key] = 5
    return t


@pytest.fixture(params=BACKENDS)
def backend(request: pytest.FixtureRequest) -> Iterator[str]:
    with use(request.param):
        yield request.param


def _said(name: str, index: int) -> str:
    _, place, extent, _ = METHODS[name]
    place = place.format(rf"index {index}( at \S.*)? is out of range for")
    return rf"Tensor\.{place} of extent {extent}: expected -{extent} to {extent - 1}"


@pytest.mark.parametrize("name", METHODS)
def test_an_index_out_of_range_is_an_index_error(backend: str, name: str) -> None:
    make, _, extent, _ = METHODS[name]
    for index in (extent, -extent - 1):
        for source in ("data", "computed"):
            with pytest.raises(IndexError, match=_said(name, index)) as error:
                make(Tensor(X), INDICES[source](np.array([index], np.int32))).numpy()
            assert isinstance(error.value, SpecIndexError)


@pytest.mark.parametrize("name", METHODS)
def test_the_first_and_the_last_index_are_in_range(backend: str, name: str) -> None:
    make, _, extent, want = METHODS[name]
    for index in (-extent, extent - 1):
        for source in ("data", "computed"):
            i = np.array([index], np.int32)
            assert np.array_equal(make(Tensor(X), INDICES[source](i)).numpy(), want(X, i))


@pytest.mark.parametrize("source", INDICES)
def test_it_does_not_matter_where_an_index_comes_from(backend: str, source: str) -> None:
    for index in (3, -4):
        with pytest.raises(IndexError, match=rf"index {index}\b"):
            Tensor(X)[INDICES[source](np.array([0, index, 1], np.int32))].numpy()
    fine = np.array([0, -3, 2], np.int32)
    assert np.array_equal(np.sort(Tensor(X)[INDICES[source](fine)].numpy(), 0), np.sort(X[fine], 0))


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64"])
def test_every_integer_dtype_is_checked_at_both_ends(dtype: str) -> None:
    x, d = Tensor(np.arange(100)), np.iinfo(dtype)
    for computed in (False, True):
        for index in {d.min, -101, -100, 0, 99, 100, d.max}:
            if not d.min <= index <= d.max:
                continue
            i = Tensor(np.array([7, index], dtype))
            t = x[i + i - i if computed else i]
            if -100 <= index < 100:
                assert t.tolist() == [7, index % 100]
            else:
                with pytest.raises(IndexError, match=rf"index {index}\b.* expected {0 if dtype[0] == 'u' else -100} to 99"):
                    t.numpy()


def test_the_first_index_out_of_range_is_named_with_its_position() -> None:
    with pytest.raises(IndexError, match=r"index 5 at \(0, 2\) is"):
        Tensor(X)[Tensor([[0, 1, 5], [9, 1, 2]])].numpy()
    with pytest.raises(IndexError, match=r"index 7 at 1 is"):
        Tensor(X).take([0, 7, -9], 1).numpy()


@pytest.mark.parametrize(
    "read",
    [
        lambda t: t.realize(),
        lambda t: Tensor(X).realize(t),
        lambda t: t.numpy(),
        lambda t: np.asarray(t),
        lambda t: t.tolist(),
        lambda t: t[0, 0].item(),
        lambda t: float(t.sum()),
        lambda t: np.from_dlpack(t),
        lambda t: t.realize(backend="interp"),
        lambda t: (t.relu() @ Tensor(X).T).numpy(),
    ],
)
def test_every_way_to_a_value_checks(read: Callable[[Tensor], Any]) -> None:
    for source in ("data", "computed"):
        with pytest.raises(IndexError, match="index 3"):
            read(Tensor(X)[INDICES[source](np.array([0, 3], np.int32))])


def test_an_axis_without_elements_has_no_index() -> None:
    for source in ("data", "computed"):
        with pytest.raises(IndexError, match=r"index 0\b.* axis 0 of extent 0: it has no elements"):
            Tensor(np.zeros((0, 2), np.float32))[INDICES[source](np.array([0], np.int32))].numpy()


def test_no_index_is_in_range() -> None:
    none = Tensor(np.zeros((0,), np.int32))
    for i in (none, none * 2):
        assert Tensor(X)[i].shape == Tensor(X)[i].numpy().shape == (0, 4)
        assert Tensor(np.zeros((0, 2), np.float32))[i].numpy().shape == (0, 2)


# After a failure


def test_nothing_of_a_failure_is_held(backend: str) -> None:
    """What was realized together is not either; with mended data every Tensor works."""
    memory = np.array([0, 3], np.int32)
    for i in (Tensor.from_numpy(memory), Tensor.from_numpy(memory) * 1):
        memory[:] = 0, 3
        t = Tensor(X)
        rows, beside = t[i], t + 1
        for _ in range(2):
            with pytest.raises(IndexError, match="index 3"):
                rows.realize(beside)
            assert not rows.is_realized and not beside.is_realized
        memory[:] = 0, 2
        assert np.array_equal(rows.numpy(), X[[0, 2]]) and np.array_equal(beside.numpy(), X + 1)


def test_one_program_serves_good_and_bad_data(backend: str) -> None:
    def rows(*index: int) -> Tensor:
        i = Tensor(np.array(index, np.int32))
        return Tensor(X)[i + i - i]

    for _ in range(2):
        assert np.array_equal(rows(1, 2).numpy(), X[[1, 2]])
        with pytest.raises(IndexError, match="index 3"):
            rows(1, 3).numpy()


def test_a_failed_assignment_leaves_older_nodes_their_values() -> None:
    t = Tensor(X)
    old, view = t * 1, t[0]
    t[Tensor([0, 7])] = 1
    for broken in (t, t + 1):
        with pytest.raises(IndexError, match=r"Tensor\.__setitem__: index 7 at 1"):
            broken.numpy()
    assert np.array_equal(old.numpy(), X) and np.array_equal(view.numpy(), X[0])


@pytest.mark.parametrize("computed", [False, True])
def test_a_failed_assignment_raises_once_and_leaves_the_old_contents(backend: str, computed: bool) -> None:
    def index(*values: int) -> Tensor:
        i = Tensor(np.array(values, np.int32))
        return i + i - i if computed else i

    t = Tensor(X) + 0
    rows, before = t[1:], t * 2
    t[index(0, 7)] = 1
    after = t[1:] + 1
    for broken, expected in ((t, X), (after, X[1:] + 1)):
        with pytest.raises(IndexError, match="index 7"):
            broken.numpy()
        assert np.array_equal(broken.numpy(), expected)
    assert np.array_equal(before.numpy(), 2 * X) and np.array_equal(rows.numpy(), X[1:])
    t[index(0)] = 5
    wanted = X.copy()
    wanted[0] = 5
    assert np.array_equal(t.numpy(), wanted)


def test_of_several_assignments_the_failed_one_alone_is_dropped(backend: str) -> None:
    t, i = Tensor(X) * 1, Tensor(np.array([1, 1], np.int32))
    t[i - 1] = 5
    t[i * 9] = 6
    t[i * 2 - 1] += 7
    t[i * 8 - 7 + t[0, :2].cast("int32") * 0] = 8
    wanted = X.copy()
    wanted[0] = 5
    wanted[1] = 8
    with pytest.raises(IndexError, match="index 9"):
        t.numpy()
    assert np.array_equal(t.numpy(), wanted)


def test_a_later_assignment_is_still_checked_when_one_was_dropped(backend: str) -> None:
    t, i = Tensor(X) * 1, Tensor(np.array([1], np.int32))
    t[i * 9] = 6
    t[i * 8] = 7
    for _ in range(2):
        with pytest.raises(IndexError, match=r"index [89]"):
            t.numpy()
    assert np.array_equal(t.numpy(), X)


def test_memory_of_others_is_looked_at_each_time() -> None:
    memory = np.array([0, 2], np.int32)
    mine, theirs = Tensor(memory), Tensor.from_numpy(memory)
    assert np.array_equal((Tensor(X)[mine] + Tensor(X)[theirs]).numpy(), 2 * X[[0, 2]])
    memory[0] = 3
    assert np.array_equal(Tensor(X)[mine].relu().numpy(), X[[0, 2]])
    with pytest.raises(IndexError, match="index 3 at 0"):
        Tensor(X)[theirs].relu().numpy()


# Functions


def test_a_check_in_a_function_holds_of_each_call(backend: str) -> None:
    @function
    def rows(t: Tensor, i: Tensor) -> Tensor:
        return t[i * 2]

    @function
    def twice(t: Tensor, i: Tensor) -> tuple[Tensor, Tensor]:
        return rows(t, i) * 2, rows(t, i * 0)

    for i in (Tensor(np.array([0, 1], np.int32)), Tensor(np.array([0, 2], np.int32)) - 1):
        assert np.array_equal(rows(Tensor(X), i).numpy(), X[2 * i.numpy()])
        assert np.array_equal(twice(Tensor(X), i)[0].numpy(), 2 * X[2 * i.numpy()])
    for i in (Tensor(np.array([0, 2], np.int32)), Tensor(np.array([0, 1], np.int32)) + 1):
        for f in (rows, lambda t, i: twice(t, i)[0], lambda t, i: rows(t * 1, i + 0)):
            with pytest.raises(IndexError, match=r"__getitem__: index 4\b.* axis 0 of extent 3"):
                f(Tensor(X), i).numpy()


def test_a_function_checks_indices_that_it_captures_or_assigns_by() -> None:
    bad, outside = Tensor([1, 3]), Tensor(X)[Tensor([5]) * 1]

    @function
    def scattered(t: Tensor) -> Tensor:
        s = t * 1
        s[bad] = 0
        return s

    with pytest.raises(IndexError, match=r"__setitem__: index 3 at 1"):
        scattered(Tensor(X)).numpy()
    with pytest.raises(IndexError, match="index 5"):
        function(lambda t: t + outside)(Tensor(X)).numpy()
    with pytest.raises(IndexError, match="index 9"):
        function(lambda t, i: t[Tensor([0, 9])[i]])(Tensor(X), Tensor([0, 1]) * 1).numpy()


def test_an_index_of_an_index_names_the_inner_one_first(backend: str) -> None:
    inner = Tensor([0, 9, 1]) * 1
    with pytest.raises(IndexError, match=r"index 3\b"):
        Tensor(X)[inner[Tensor([0, 3]) * 1]].numpy()
    with pytest.raises(IndexError, match=r"index 9\b"):
        Tensor(X)[inner[Tensor([0, 1]) * 1]].numpy()


# What is not checked


def test_unchecked_leaves_the_check_out(backend: str) -> None:
    for source in ("data", "computed"):
        i = INDICES[source](np.array([0, 3], np.int32))
        lazy: list[Callable[[], Any]] = [
            lambda i=i: Tensor(X)[i].realize(unchecked=True),
            lambda i=i: Tensor(X).take(i, 0, unchecked=True).realize(),
            lambda i=i: Tensor(X).gather(0, i.reshape(2, 1), unchecked=True).realize(),
            lambda i=i: function(lambda t, i: t.take(i, 0, unchecked=True))(Tensor(X), i).realize(),
        ]
        for read in lazy:
            if backend == "interp":  # which traps for itself (R26)
                with pytest.raises(Trap, match="R45"):
                    read()
            else:
                assert read().numpy()[0, 0] == 0
        with use(unchecked=True):
            if backend != "interp":
                assert Tensor(X)[i].numpy()[0, 0] == 0
            with use(unchecked=False), pytest.raises(IndexError):
                Tensor(X)[i].numpy()
            with pytest.raises(IndexError):
                Tensor(X)[i].realize(unchecked=False)


def test_a_node_made_unchecked_is_another_than_the_same_checked() -> None:
    t, i = Tensor(X), Tensor([0, 3])
    f = function(lambda t, i: t.gather(0, i.reshape(2, 1)) * 2)
    g = function(lambda t, i: t.gather(0, i.reshape(2, 1), unchecked=True) * 2)
    for checked, free in (
        (t[i], t.take(i, 0, unchecked=True)),
        (f(t, i), g(t, i)),
        (function(lambda *a: f(*a))(t, i), function(lambda *a: g(*a))(t, i)),
    ):
        assert capture(checked).graph is capture(free).graph
        with pytest.raises(IndexError):
            checked.numpy()
        assert free.numpy()[0, 0] == 0


@pytest.fixture
def compiled(monkeypatch: pytest.MonkeyPatch) -> list[UOp]:
    """Every graph that is compiled from now on."""
    seen: list[UOp] = []
    run = _run_by(monkeypatch, lambda graph, backend: seen.append(graph) or run(graph, backend))
    return seen


def _run_by(monkeypatch: pytest.MonkeyPatch, runner: Any) -> Any:
    """Let `runner` compile all graphs anew. Returns the runner before it."""
    before = realize.RunnerState.runner
    monkeypatch.setattr(realize.RunnerState, "runner", runner)
    monkeypatch.setattr(realize._local, "programs", OrderedDict(), raising=False)
    return before


def test_a_program_has_a_check_only_where_an_index_is_computed_and_not_proved(compiled: list[UOp]) -> None:
    t, i = Tensor(X), Tensor(np.array([1, 2], np.int32))
    for plain in (
        t[i],
        t[i.reshape(1, 2).expand(2, 2).cast("int64")],
        t[(i * 1).clip(-3, 2)],
        t[(Tensor.arange(4) > i[0]).cast("int8")],
        t.take(i * 1, 0, unchecked=True),
    ):
        wanted = capture(plain).graph
        plain.realize()
        assert compiled.pop() is wanted and Op.TUPLE not in {u.op for u in toposort(wanted)}
        assert all(u.tag is not UNCHECKED for u in toposort(wanted))
    t[i * 1].realize()
    assert compiled.pop().op is Op.TUPLE
    (t[i * 1] + t[i * 1, :]).realize()
    assert len(compiled.pop().src) == 2  # one check for both


def test_a_captured_graph_is_the_program_alone() -> None:
    captured = capture(Tensor(X)[Tensor([0, 9]) * 1])
    assert captured.graph.op is not Op.TUPLE


def test_a_trap_for_another_reason_stays_one(monkeypatch: pytest.MonkeyPatch) -> None:
    def trap(inputs: Any) -> Any:
        raise Trap("another reason")

    run = _run_by(monkeypatch, lambda graph, backend: trap if graph.op is Op.TUPLE else run(graph, backend))
    with pytest.raises(Trap, match="another reason"):
        Tensor(X)[Tensor([0, 1]) * 1].numpy()
    with pytest.raises(IndexError, match="index 3 at 1"):
        Tensor(X)[Tensor([0, 3]) * 1].numpy()


def test_take_is_numpys(agree: Any) -> None:
    i = np.array([[2, -1], [0, 1]])
    agree(
        [Tensor(X).take(Tensor(i)), Tensor(X).take(i, 1), Tensor(X).take(i.tolist(), axis=-2), Tensor(X).take(2, 0)],
        [X.take(i), X.take(i, 1), X.take(i, -2), X.take(2, 0)],
        0,
    )
    with pytest.raises(SpecError, match=r"Tensor\.take: expected an integer or an array of integers, got slice \[INDEX\.C4"):
        Tensor(X).take(slice(1))
    with pytest.raises(SpecError, match=r"Tensor\.take: axis 2 is out of range for shape"):
        Tensor(X).take(i, 2)
