"""Lanes: schedules, warps and the tensor-core instruction, and graphs that are deep."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from uops.fuzz.generate.bestiary.maker import node
from uops.interp.bestiary import run
from uops.interp.bestiary.lanes import Coordinates, group_into_warps, iteration_order
from uops.interp.bestiary.machine import GROUP_NAMES
from uops.interp.kernel.structure import blocks
from uops.spec.bestiary.build import at, load, store
from uops.spec.errors import Trap
from uops.spec.ir import args as A
from uops.spec.ir import build as b
from uops.spec.ir import dtypes as dt
from uops.spec.ir.axes import AxisType
from uops.spec.ir.node import UOp
from uops.spec.ir.ops import Op
from uops.spec.wmma import DESCRIPTORS, Descriptor

SMALL = [d for d in DESCRIPTORS if d.threads == 32 and d.dims == (8, 8, 4)] + [d for d in DESCRIPTORS if d.name.startswith("simd")][
    :1
]


def param(slot: int, size: int, d: dt.DType) -> UOp:
    return node(Op.B_PARAM, arg=A.BParamArg(slot, size, d))


def fragments(d: Descriptor, operand: str, matrix: Any) -> Any:
    """What each lane holds, by the descriptor's map."""
    m = d.map(operand)
    return np.array([[matrix[m.place(t, e)] for e in range(m.elements)] for t in range(m.lanes)])


def product(d: Descriptor, lane: UOp, warps_: int, *closed: UOp) -> UOp:
    """Every lane loads its fragments, multiplies, and stores its own."""
    sizes = [d.map(o).elements for o in ("A", "B", "C")]
    types = (d.dtype_in, d.dtype_in, d.dtype_out)
    held = [
        load(at(b.reshape(param(k + 1, 32 * warps_ * n, t), (32 * warps_, n)), lane)) for k, (n, t) in enumerate(zip(sizes, types))
    ]
    w = node(Op.WMMA, *held, arg=A.WmmaArg(d.name, d.dims, d.dtype_in, d.dtype_out, "GPU", 32))
    out = b.reshape(param(0, 32 * warps_ * sizes[2], d.dtype_out), (32 * warps_, sizes[2]))
    return store(at(out, lane), w, *closed)


@pytest.mark.parametrize("schedule", [None, 1])
@pytest.mark.parametrize("form", ["WARP", "LOCAL", "two loops", "SPECIAL"])
@pytest.mark.parametrize("d", SMALL, ids=lambda d: d.name)
def test_a_warp_multiplies_matrices(d: Descriptor, form: str, schedule: int | None) -> None:
    n, m, k = d.dims
    rng = np.random.default_rng(7)
    count = 1 if form in ("WARP", "LOCAL") else 2
    shapes = {"A": (m, k), "B": (k, n), "C": (m, n)}
    matrices = [{o: rng.integers(-4, 5, s).astype(d.dtype_out.name) for o, s in shapes.items()} for _ in range(count)]
    whole = {o: np.concatenate([fragments(d, o, x[o]) for x in matrices]).astype(np.dtype(d.dtype_in.name)) for o in shapes}
    if form == "SPECIAL":
        graph = product(d, node(Op.SPECIAL, b.index(64), arg=A.SpecialArg("lidx0")), 2)
    elif form == "two loops":
        warp, outer = (
            node(Op.B_RANGE, b.index(x), arg=A.RangeArg(j, t)) for x, j, t in ((32, 0, AxisType.WARP), (2, 1, AxisType.LOCAL))
        )
        graph = product(d, b.add(b.mul(outer, b.index(32)), warp), 2, warp, outer)
    else:
        lane = node(Op.B_RANGE, b.index(32), arg=A.RangeArg(0, AxisType[form]))
        graph = product(d, lane, 1, lane)
    inputs = {f"p{j}": np.zeros_like(whole["C"]).reshape(-1) if j == 0 else whole["ABC"[j - 1]].reshape(-1) for j in range(4)}
    wanted = np.concatenate([fragments(d, "C", x["A"] @ x["B"] + x["C"]) for x in matrices])
    assert np.array_equal(run(graph, inputs, schedule=schedule).buffers["p0"], wanted.reshape(-1))


def test_a_part_of_a_warp_cannot_multiply() -> None:
    d = SMALL[0]
    lane = node(Op.B_RANGE, b.index(31), arg=A.RangeArg(0, AxisType.WARP))
    graph = product(d, lane, 1, lane)
    inputs = {f"p{j}": np.ones(32 * d.map("CABC"[j]).elements, np.dtype(d.dtype_in.name)) for j in range(4)}
    with pytest.raises(Trap, match="R60"):
        run(graph, inputs)


def test_an_instruction_that_no_descriptor_explains() -> None:
    lane = node(Op.B_RANGE, b.index(32), arg=A.RangeArg(0, AxisType.WARP))
    two = node(Op.VECTORIZE, b.const(1.0), b.const(2.0))
    w = node(Op.WMMA, two, two, two, arg=A.WmmaArg("nobody", (8, 8, 8), dt.float32, dt.float32, "GPU", 32))
    with pytest.raises(Trap, match=r"Opaque\(nobody\)"):
        run(store(at(b.reshape(param(0, 64, dt.float32), (32, 2)), lane), w, lane), {"p0": np.zeros(64, np.float32)})


def test_warp_loops_vary_fastest_then_the_innermost_of_the_others() -> None:
    lanes: list[Coordinates] = [((True, w), (False, k)) for w in range(2) for k in range(2)]
    assert group_into_warps(lanes, 2) == [[((True, w), (False, k)) for w in range(2)] for k in range(2)]
    plain: list[Coordinates] = [((False, a), (False, c)) for a in range(2) for c in range(2)]
    assert group_into_warps(plain, 2) == [plain[:2], plain[2:]]


def test_names_of_workgroups_are_those_of_the_kernel_interpreter() -> None:
    assert set(GROUP_NAMES) == set(blocks.GROUP_NAMES)


def test_schedules_are_orders_and_differ() -> None:
    assert iteration_order(5, None, 0) == list(range(5))
    found = {tuple(iteration_order(5, s, 0)) for s in range(20)}
    assert len(found) > 10
    assert all(sorted(o) == list(range(5)) for o in found)


def test_a_schedule_runs_unordered_iterations_in_its_order() -> None:
    def seen(kind: AxisType, schedule: int | None) -> list[int]:
        r = node(Op.B_RANGE, b.index(6), arg=A.RangeArg(0, kind))
        found: list[int] = []
        graph = store(at(param(0, 6, dt.int32), r), b.cast(r, dt.int32), r)
        run(
            graph,
            {} | {"p0": np.zeros(6, np.int32)},
            schedule=schedule,
            trace=lambda u, v: found.append(int(v)) if u is r else None,
        )
        return found

    for kind in AxisType:
        assert seen(kind, None) == list(range(6))
        orders = [seen(kind, s) for s in range(4)]
        assert all(sorted(o) == list(range(6)) for o in orders)
        assert (len({tuple(o) for o in orders}) > 1) is (kind not in (AxisType.LOOP, AxisType.REDUCE))


def test_a_deep_expression_needs_no_stack() -> None:
    x = node(Op.PRECAST, b.const(0))
    for _ in range(20_000):
        x = b.add(x, b.const(1))
    assert run(x, {}).values[0] == 20_000


def test_a_long_chain_of_loops_needs_no_stack() -> None:
    m = param(0, 1, dt.int32)
    done, n = m, 2_000
    for k in range(n):
        r = node(Op.B_RANGE, b.index(1), arg=A.RangeArg(k, AxisType.LOOP))
        here = at(done, r)
        done = b.after(m, store(here, b.add(load(here), b.const(1)), r))
    assert run(done, {"p0": np.zeros(1, np.int32)}).values[0].tolist() == [n]
