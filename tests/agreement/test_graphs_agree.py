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
from uops.spec.errors import Trap
from uops.spec.ir import dtypes as dt
from uops.spec.ir.node import toposort
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
