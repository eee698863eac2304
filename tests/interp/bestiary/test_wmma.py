"""A WMMA that ends ranges, or that computes a grid of tiles: its value, and the legal form's (R178, configuration of a Wmma)."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from uops.fuzz.generate.bestiary.maker import node
from uops.interp import run as run_core
from uops.interp.bestiary import run
from uops.spec.bestiary.build import at, load, store
from uops.spec.bestiary.legalize import legalize
from uops.spec.errors import SpecError
from uops.spec.ir import args as A
from uops.spec.ir import build as b
from uops.spec.ir.axes import AxisType
from uops.spec.ir.node import UOp, toposort
from uops.spec.ir.ops import Op
from uops.spec.verify.dialects import Dialect
from uops.spec.verify.verifier import verify
from uops.spec.wmma import descriptors_named

D = descriptors_named("simdgroup_multiply_accumulate")[0]
N, M, K = D.dims
LANES, HELD = D.threads, D.c.elements


def fragments(operand: str, matrix: Any) -> Any:
    """Return what each lane holds of the tiles of a matrix, the tiles row by row."""
    rows, cols = D.shape(operand)
    tiles = [matrix[i : i + rows, j : j + cols] for i in range(0, matrix.shape[0], rows) for j in range(0, matrix.shape[1], cols)]
    held = [[[tile[D.map(operand).place(t, e)] for e in range(HELD)] for t in range(LANES)] for tile in tiles]
    return np.concatenate(np.array(held, matrix.dtype), axis=1)


def product(lane: UOp, grid: tuple[int, int], steps: UOp | None, *closed: UOp) -> UOp:
    """Build the product of `grid` tiles over the steps; step k of operand A or B is row k of its memory."""
    along_n, along_m = grid
    count = 1 if steps is None else int(steps.src[0].arg.value)
    held = []
    for slot, (tiles, runs) in enumerate(((along_m, count), (along_n, count), (along_m * along_n, 1)), 1):
        size = tiles * HELD
        memory = node(Op.B_PARAM, arg=A.BParamArg(slot, runs * LANES * size, D.dtype_out if slot == 3 else D.dtype_in))
        row = lane if steps is None or slot == 3 else b.add(b.mul(steps, b.index(LANES)), lane)
        held.append(load(at(b.reshape(memory, (runs * LANES, size)), row)))
    arg = A.WmmaArg(D.name, D.dims, D.dtype_in, D.dtype_out, "GPU", LANES, tile_grid=grid)
    w = node(Op.WMMA, *held, *(() if steps is None else (steps,)), arg=arg)
    size = along_m * along_n * HELD
    out = b.reshape(node(Op.B_PARAM, arg=A.BParamArg(0, LANES * size, D.dtype_out)), (LANES, size))
    return store(at(out, lane), w, *closed)


@pytest.mark.parametrize("form", ["WARP", "SPECIAL"])
@pytest.mark.parametrize("kind", [AxisType.LOOP, AxisType.REDUCE])
@pytest.mark.parametrize(("grid", "count"), [((1, 1), 3), ((2, 3), None), ((3, 1), 2), ((2, 2), 0)], ids=str)
def test_a_product_of_tiles_over_steps(grid: tuple[int, int], count: int | None, kind: AxisType, form: str) -> None:
    steps = None if count is None else node(Op.B_RANGE, b.index(count), arg=A.RangeArg(7, kind))
    if form == "WARP":
        lane = node(Op.B_RANGE, b.index(LANES), arg=A.RangeArg(0, AxisType.WARP))
        graph = product(lane, grid, steps, lane)
    else:
        graph = product(node(Op.SPECIAL, b.index(LANES), arg=A.SpecialArg("lidx0")), grid, steps)
    rng = np.random.default_rng(5)
    draw = lambda *shape: rng.integers(-4, 5, shape).astype(D.dtype_in.name)  # noqa: E731
    runs = 1 if count is None else count
    a = [draw(grid[1] * M, K) for _ in range(runs)]
    c = [draw(K, grid[0] * N) for _ in range(runs)]
    start = draw(grid[1] * M, grid[0] * N).astype(D.dtype_out.name)
    inputs = {
        "p1": np.concatenate([fragments("A", x).reshape(-1) for x in a] or [np.zeros(0, D.dtype_in.name)]),
        "p2": np.concatenate([fragments("B", x).reshape(-1) for x in c] or [np.zeros(0, D.dtype_in.name)]),
        "p3": fragments("C", start).reshape(-1),
    }
    wanted = fragments("C", sum((x @ y for x, y in zip(a, c)), start)).reshape(-1)
    inputs["p0"] = np.zeros_like(wanted)
    verify(graph, Dialect.BESTIARY)
    assert np.array_equal(run(graph, inputs).buffers["p0"], wanted)
    legal = legalize(graph)
    products = [u for u in toposort(legal) if u.op is Op.WMMA]
    assert len(products) == grid[0] * grid[1]
    assert all(u.arg.tile_grid == (1, 1) and not u.ranges for u in products)
    assert np.array_equal(run_core(legal, inputs).buffers["p0"], wanted)


def test_the_legal_form_of_one_tile_is_itself() -> None:
    lane = node(Op.B_RANGE, b.index(LANES), arg=A.RangeArg(0, AxisType.WARP))
    legal = legalize(product(lane, (1, 1), None, lane))
    assert not any(u.op is Op.BUFFER for u in toposort(legal))


def test_a_core_kernel_closes_no_range_by_a_wmma() -> None:
    """Nothing verified the graph: the interpreter does not compute the first step alone."""
    steps = UOp(Op.RANGE, (b.index(2),), A.RangeArg(7, AxisType.REDUCE))
    one = b.stack(*[b.const(1.0, D.dtype_in)] * HELD)
    arg = A.WmmaArg(D.name, D.dims, D.dtype_in, D.dtype_out, "GPU", LANES)
    w = UOp(Op.WMMA, (one, one, one, steps), arg)
    kernel = UOp(Op.SINK, (b.store(b.param(0, (HELD,), D.dtype_out), w),), A.SinkArg("k"))
    with pytest.raises(SpecError, match="has no value here"):
        run_core(kernel, {"p0": np.zeros(HELD, D.dtype_out.name)}, check=False)
