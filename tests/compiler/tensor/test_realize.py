"""Realization: lazy until asked, one program for several Tensors, compiled once per structure, on the backend named."""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import uops
from uops import Op, SpecError, Tensor, UOp, use
from uops.backends import api
from uops.compiler.tensor import capture, install, realize, storage
from uops.interp import run
from uops.spec.ir import build as b
from uops.spec.ir import dtypes as dt
from uops.spec.ir.node import toposort

Compiled = list[tuple[UOp, str]]


@pytest.fixture
def compiled() -> Iterator[Compiled]:
    """What the runner is asked to compile."""
    seen: Compiled = []

    def runner(graph: UOp, backend: str) -> Callable[..., Any]:
        seen.append((graph, backend))
        return api.compile(graph, backend)

    install(runner)
    yield seen
    install(api.compile)


def test_nothing_is_computed_before_it_is_asked_for(compiled: Compiled) -> None:
    t = (Tensor([1.0, 2.0]) @ Tensor([[1.0], [2.0]])).softmax()
    assert compiled == [] and not t.is_realized
    t.realize()
    assert len(compiled) == 1 and t.is_realized


def test_new_data_in_the_same_structure_compiles_nothing(compiled: Compiled) -> None:
    found = []
    for k in range(3):
        x, w = Tensor(np.full((2, 3), k, np.float32)), Tensor(np.ones((3, 2), np.float32))
        found.append(((x @ w).relu() + 1).tolist()[0][0])
    assert found == [1.0, 4.0, 7.0]
    assert len(compiled) == 1


def test_a_realized_tensor_enters_graphs_as_an_input(compiled: Compiled) -> None:
    t = (Tensor([1.0, 2.0]) * 3).realize()
    u = t + 1
    assert Op.MUL not in {n.op for n in toposort(capture(u).graph)}
    assert u.tolist() == [4.0, 7.0]
    assert len(compiled) == 2


def test_graphs_made_before_a_realization_use_its_result() -> None:
    t = Tensor([1.0, 2.0]) * 3
    u = t + 1
    t.realize()
    assert Op.MUL not in {n.op for n in toposort(capture(u).graph)}
    assert u.tolist() == [4.0, 7.0]


def test_several_tensors_are_one_program(compiled: Compiled) -> None:
    x = Tensor([1.0, 2.0])
    a, c = x + 1, x * 2
    Tensor.realize(a, c, a)
    assert len(compiled) == 1 and compiled[0][0].op is Op.TUPLE and len(compiled[0][0].src) == 2
    assert (a.tolist(), c.tolist()) == ([2.0, 3.0], [2.0, 4.0])
    assert len(compiled) == 1


def test_a_tensor_that_holds_its_array_needs_no_program(compiled: Compiled) -> None:
    t = Tensor([[1, 2], [3, 4]])
    assert t.realize().reshape(4).tolist() == [1, 2, 3, 4]
    assert compiled == []


def test_the_backend_is_the_calls_the_blocks_or_llvm(compiled: Compiled) -> None:
    (Tensor([1.0]) + 2).realize()
    with use("interp"):
        (Tensor([1.0]) + 2).realize()
        (Tensor([1.0]) + 2).realize(backend="llvm")
        with use("llvm"):
            (Tensor([1.0]) + 3).realize()
    (Tensor([1.0]) + 3).realize(backend="interp")
    assert [name for _, name in compiled] == ["llvm", "interp", "llvm", "interp"]
    with pytest.raises(Exception, match="nosuch"):
        (Tensor([1.0]) + 2).realize(backend="nosuch")


def test_the_captured_graph_is_closed_and_runs_anywhere() -> None:
    x = Tensor(np.arange(3, dtype=np.float32))
    captured = capture(x + 1, x * x)
    assert not [u for u in toposort(captured.graph) if u.op is Op.BUFFER]
    assert list(captured.inputs) == ["p0"]
    for values in (run(captured.graph, captured.inputs).values, uops.compile(captured.graph)(captured.inputs).values):
        assert [v.tolist() for v in values] == [[1, 2, 3], [0, 1, 4]]


def test_one_array_used_twice_is_one_input_and_two_equal_ones_are_two() -> None:
    x = Tensor([1.0])
    assert len(capture(x + x.reshape(1, 1)).inputs) == 1
    assert len(capture(x + Tensor([1.0])).inputs) == 2


def test_an_array_lives_as_long_as_a_graph_refers_to_it() -> None:
    gc.collect()  # what other tests have left behind would go on the way
    before = len(storage._arrays)
    t = Tensor(np.ones(1000, np.float32))
    u = t + 1
    del t
    gc.collect()
    assert len(storage._arrays) == before + 1
    assert u.sum().item() == 2000
    del u
    gc.collect()
    assert len(storage._arrays) == before


def test_the_result_of_a_constant_is_not_kept_for_its_node() -> None:
    t = Tensor.zeros(50, 2).realize()
    assert t.is_realized and not Tensor.zeros(50, 2).is_realized


def test_constants_need_no_memory() -> None:
    captured = capture(Tensor.ones(1000, 1000) * 2)
    assert captured.inputs == {}


def test_a_free_param_has_no_value() -> None:
    with pytest.raises(SpecError, match="Param 3 is free"):
        Tensor(b.param(3, (2,), dt.float32)).realize()
    with pytest.raises(SpecError, match="at least one"):
        capture()


def test_tensors_realize_in_several_threads() -> None:
    x = Tensor(np.arange(4, dtype=np.float32))
    found: dict[int, float] = {}

    def work(k: int) -> None:
        found[k] = float((x * k).sum())

    threads = [threading.Thread(target=work, args=(k,)) for k in range(6)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert found == {k: 6.0 * k for k in range(6)}


def test_the_front_end_without_a_runner_says_what_to_import(monkeypatch: pytest.MonkeyPatch) -> None:
    from uops.compiler.tensor import realize

    monkeypatch.setattr(realize.RunnerState, "runner", None)
    with pytest.raises(SpecError, match=r"no runner is installed: import uops\.backends\.api"):
        (Tensor([1.0]) + 5).realize()


def test_graphs_may_be_deep() -> None:
    t = Tensor([1.0])
    for _ in range(5000):
        t = t + 1
    captured = capture(t)
    assert len(toposort(captured.graph)) > 5000
    assert run(captured.graph, captured.inputs).values[0].tolist() == [5001.0]


def test_a_program_is_found_by_structure(monkeypatch: pytest.MonkeyPatch) -> None:
    def three_ops(x: Tensor, y: Tensor, k: float) -> Tensor:
        return ((x + y) * k).reshape(2, 1).sum(0) - y[:1]

    def leaf(*values: float, dtype: Any = np.float32) -> Tensor:
        return Tensor(np.array(values, dtype))

    assert three_ops(leaf(1, 2), leaf(3, 4), 2.0).tolist() == [17.0]
    captures: list[UOp] = []
    replace = realize._GraphCapture.replace_buffers_by_params

    def counted(self: Any, root: UOp) -> UOp:
        captures.append(root)
        return replace(self, root)

    monkeypatch.setattr(realize._GraphCapture, "replace_buffers_by_params", counted)
    assert three_ops(leaf(5, 6), leaf(7, 8), 2.0).tolist() == [45.0] and not captures
    realized = (leaf(5, 6) + leaf(0, 0)).realize()
    captures.clear()
    assert three_ops(realized, leaf(7, 8), 2.0).tolist() == [45.0] and not captures
    x = leaf(1, 2)
    others = {
        "one Tensor twice": (lambda: three_ops(x, x, 2.0), [11.0]),
        "another constant": (lambda: three_ops(leaf(1, 2), leaf(3, 4), -0.0), [-3.0]),
        "the sign of a zero": (lambda: three_ops(leaf(1, 2), leaf(3, 4), 0.0), [-3.0]),
        "another dtype": (lambda: three_ops(leaf(1, 2, dtype=np.float64), leaf(3, 4, dtype=np.float64), 2.0), [17.0]),
        "another extent": (lambda: (leaf(1, 2, 3) + leaf(3, 4, 5)) * 2.0, [8.0, 12.0, 16.0]),
        "another order": (lambda: three_ops(leaf(3, 4), leaf(1, 2), 2.0), [19.0]),
    }
    for what, (build, expected) in others.items():
        captures.clear()
        assert build().tolist() == expected and (captures or what == "another order"), what
        captures.clear()
        assert build().tolist() == expected and not captures, what
    with uops.use("interp"):
        assert three_ops(leaf(1, 2), leaf(3, 4), 2.0).tolist() == [17.0] and captures
    for dtype in (np.float32, np.float64, np.int32):  # no constant tells these apart
        assert (leaf(1, 2, dtype=dtype) + leaf(3, 4, dtype=dtype)).numpy().dtype == dtype


def test_constants_and_data_are_realized_by_structure() -> None:
    for _ in range(2):
        zero, one = Tensor.zeros(2), Tensor(np.ones(2, np.float32))
        a, b = zero + 1, one + zero
        a.realize(b)
        assert a.tolist() == b.tolist() == [1, 1]
        assert storage.find_realized_leaf(zero.uop) is None


@pytest.mark.parametrize("d", ["int32", "uint8", "float32", "bool"])
def test_a_leaf_of_integers_alone_has_a_known_range(d: str) -> None:
    leaf = storage.make_leaf_on_contiguous_memory_or_copy(np.array([1, 0], d))
    assert storage.find_range_of_unshared_integer_buffer(leaf) == ((0, 1) if "int" in d else None)
