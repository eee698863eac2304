"""The NumPy interpreter and the exact interpreter agree on whole graphs: movement, calls, memory and order, not only single ops.

The exact interpreter's sets belong to single nodes, so the graphs here hold only ops with one right answer; the sign of zero is
left free after a Max and the NaN class after arithmetic.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from uops.fuzz.generate import graphs as generator
from uops.fuzz.generate.draw import SeededDraw
from uops.fuzz.generate.graphs import FuzzCase, generate_tensor_graph
from uops.fuzz.generate.producers import PRODUCERS
from uops.interp import run
from uops.interp.exact import Bits
from uops.interp.exact import run as exact_run
from uops.spec.errors import SpecError, Trap
from uops.spec.ir import build as B
from uops.spec.ir import dtypes as dt
from uops.spec.ir.node import UOp, toposort
from uops.spec.ir.ops import ALU, Op
from uops.spec.ir.text import show

INEXACT = {"exp2", "log2", "sin", "pow", "folded"}
GRAPHS = 1200


def _small(seed: int, monkeypatch: pytest.MonkeyPatch) -> FuzzCase:
    exact = tuple(p for p in PRODUCERS if p.name not in INEXACT)
    monkeypatch.setattr(generator, "PRODUCERS", exact)
    return generate_tensor_graph(SeededDraw(seed), nodes=10, max_elements=24)


def _bits_of(a: Any) -> list[int]:
    return [int(v) for v in np.ascontiguousarray(a).reshape(-1).view(f"u{a.dtype.itemsize}")]


def _exact_inputs(c: FuzzCase) -> dict[str, Any]:
    return {k: v if isinstance(v, int) else Bits(tuple(_bits_of(np.asarray(v)))) for k, v in c.inputs.items()}


def _fits(c: FuzzCase) -> bool:
    """The exact interpreter takes values of at most 64 elements, and a float Reduce of one order only; it computes with one of the
    patterns that a NaN of float arithmetic may have (R20), which integers see through a Bitcast."""
    order = toposort(c.graph)
    floats = any(u.op in ALU and u.dtype.is_float for u in order)
    for u in order:
        if u.op is Op.BITCAST and floats and u.src[0].dtype.is_float and not u.dtype.is_float:
            return False
        if u.dtype in (dt.void, dt.index):
            continue
        if int(np.prod([n if isinstance(n, int) else 64 for n in u.shape])) > 64:
            return False
        if u.op.name == "REDUCE" and u.dtype.is_float and u.arg.op.name != "MAX":
            return False
    return True


def _same(want: Any, got: Any, is_float: bool) -> list[int]:
    """Positions whose bits are not the answer's, NaNs and zeros of any sign being one class."""
    off = []
    for k, (answer, bits) in enumerate(zip(want.elements, _bits_of(got), strict=True)):
        if answer is None or answer.contains(bits):
            continue
        if is_float and got.reshape(-1)[k] == 0 and want.numbers[k] == 0:
            continue
        off.append(k)
    return off


def test_the_interpreters_agree_on_generated_graphs(monkeypatch: pytest.MonkeyPatch) -> None:
    compared = 0
    for seed in range(GRAPHS):
        c = _small(seed, monkeypatch)
        if not _fits(c):
            continue
        got = run(c.graph, c.inputs)
        want = exact_run(c.graph, _exact_inputs(c))
        outputs = [*zip(want.values, got.values, strict=True), *((want.buffers[k], v) for k, v in got.buffers.items())]
        for w, g in outputs:
            assert tuple(w.shape) == g.shape
            off = _same(w, g, w.dtype.is_float)
            assert not off, (
                f"seed {seed}, elements {off}: {[w.elements[k] for k in off[:3]]} and {_bits_of(g)[off[0]]:#x}\n{show(c.graph)}"
            )
        compared += 1
    assert compared > GRAPHS // 3


def test_the_interpreters_trap_together() -> None:
    from uops.spec.ir import build as b

    x, i = b.param(0, (4,), dt.int32), b.cast(b.param(1, (), dt.int32), dt.index)
    g = b.at(x, i)
    data = np.arange(4, dtype=np.int32)
    for where in (-1, 4):
        with pytest.raises(Trap):
            run(g, {"p0": data, "p1": np.array(where, np.int32)})
        with pytest.raises(Trap):
            exact_run(g, {"p0": [0, 1, 2, 3], "p1": [where]})


def _lists(inputs: dict[str, Any]) -> dict[str, list[Any]]:
    return {k: np.asarray(v).reshape(-1).tolist() for k, v in inputs.items()}


def _values(root: UOp, inputs: dict[str, Any]) -> list[list[Any]]:
    """The values that both interpreters give, flat."""
    got = [np.asarray(v).reshape(-1).tolist() for v in run(root, inputs).values]
    assert [list(v.numbers) for v in exact_run(root, _lists(inputs)).values] == got
    return got


def _both_raise(kind: type[Exception], match: str, root: UOp, inputs: dict[str, Any], **options: Any) -> None:
    with pytest.raises(kind, match=match):
        run(root, inputs, **options)
    with pytest.raises(kind, match=match):
        exact_run(root, _lists(inputs), **options)


def test_r86_the_arguments_of_a_call_are_memory_and_integers() -> None:
    out, whole = B.param(8, (), dt.int32), B.param(3, (2, 3), dt.int32)
    data: dict[str, Any] = {
        "p3": np.arange(6, dtype=np.int32).reshape(2, 3),
        "p7": np.array(3, np.int32),
        "p8": np.array(4, np.int32),
        "v": 3,
    }
    n = B.variable("n", 0, 9, 0)
    body = B.sink(B.store(B.param(1, (), dt.int32), B.cast(B.mul(n, B.index(100)), dt.int32)))  # beyond uint8
    for argument in (B.const(3), B.const(3, dt.uint8), B.param(7, (), dt.int32), B.variable("v", 0, 99)):
        root = B.after(out, B.call(body, argument, out))
        assert _values(root, data) == [[300]]
        if argument.op is Op.PARAM:
            _both_raise(Trap, "R48", root, {**data, "p7": np.array(10, np.int32), "v": 10})
    flat, other = B.param(0, (6,), dt.int32), B.param(1, (6,), dt.int32)
    negate = B.sink(B.store(flat, B.neg(flat)))
    assert _values(B.after(whole, B.call(negate, whole)), data) == [[0, -1, -2, -3, -4, -5]]
    assert _values(B.after(whole, B.call(B.sink(B.store(flat, other)), whole, B.neg(whole))), data) == [[0, -1, -2, -3, -4, -5]]
    for wrong in (B.shrink(whole, (0, 0), (2, 2)), B.bitcast(whole, dt.int16)):
        _both_raise(SpecError, "R86", B.call(negate, wrong), data, check=False)


def test_r63_a_call_reads_its_variables_before_its_body_runs() -> None:
    memory, out = B.param(8, (2,), dt.int32), B.param(9, (), dt.int32)
    first = B.reshape(B.shrink(memory, (0,), (1,)), ())
    n, p1, p2 = B.variable("n", 0, 9, 0), B.param(1, (2,), dt.int32), B.param(2, (), dt.int32)
    data = {"p8": np.array([3, 4], np.int32), "p9": np.array(7, np.int32)}
    number = B.cast(n, dt.int32)
    stores = B.store(p1, B.add(p1, 100)), B.store(p2, number)
    for effects in (stores, stores[::-1]):
        call = B.call(B.sink(*effects), first, memory, out)
        assert _values(B.sink(B.after(memory, call), B.after(out, call)), data) == [[103, 104], [3]]
    spread = B.store(p1, B.expand(B.reshape(number, (1,)), (2,)))
    assert _values(B.after(memory, B.call(B.sink(spread), first, memory)), data) == [[3, 3]]
    written_before = B.after(memory, B.store(memory, B.add(memory, 1)))
    first_after = B.reshape(B.shrink(written_before, (0,), (1,)), ())
    assert _values(B.after(memory, B.call(B.sink(spread), first_after, memory)), data) == [[4, 4]]


def test_a_body_of_a_call_runs_after_all_of_its_arguments() -> None:
    memory, other = B.param(8, (2,), dt.int32), B.param(9, (2,), dt.int32)
    data = {"p8": np.array([3, 4], np.int32), "p9": np.array([5, 6], np.int32)}
    p0 = B.param(0, (2,), dt.int32)
    after_a_store = B.after(other, B.store(memory, B.add(memory, 1)))
    call = B.call(B.sink(B.store(p0, B.mul(p0, 2))), memory, after_a_store)
    assert _values(B.after(memory, call), data) == [[8, 10]]
    unordered = B.sink(B.store(memory, B.add(memory, 1)), B.call(B.sink(B.store(p0, p0)), memory))
    _both_raise(Trap, "R55", unordered, data)
