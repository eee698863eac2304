"""Claims about kernels of workgroups on any machine that launches them. A test module imports them and has a fixture `tier`."""

from __future__ import annotations

import numpy as np
import pytest
from kernel_claims import linear
from workgroup_kernels import local, nest, reversal, special

from uops.interp import run as interpreted
from uops.spec.ir import args as A
from uops.spec.ir import build as B
from uops.spec.ir import dtypes as dt
from uops.spec.ir.axes import AxisType
from uops.spec.ir.node import UOp
from uops.spec.ir.ops import Op


def test_a_workgroup_shares_local_memory_across_a_barrier_R60_R61(kernels, tier: str) -> None:
    x = np.arange(4 * 64, dtype=np.int32)
    out = np.zeros_like(x)
    kernels.execute(reversal(4, 64), [out, x], tier=tier)
    assert out.reshape(4, 64).tolist() == x.reshape(4, 64)[:, ::-1].tolist()


def test_every_iteration_of_a_launch_runs_once(kernels, tier: str) -> None:
    out = np.zeros(6 * 4 * 8 * 3, np.int32)
    kernels.execute(nest((6, AxisType.GLOBAL), (4, AxisType.GLOBAL), (8, AxisType.LOCAL), (3, AxisType.LOOP)), [out], tier=tier)
    assert out.tolist() == [1] * len(out)


@pytest.mark.parametrize("n", [-2, 0, 5])
def test_a_launch_of_a_variable_size_R57(kernels, tier: str, n: int) -> None:
    v = UOp(Op.PARAM, (B.SCALAR,), A.ParamArg(1, dt.index, name="n", bounds=(-9, 9)))
    i = UOp(Op.RANGE, (v,), A.RangeArg(0, AxisType.GLOBAL))
    out = np.zeros(9, np.int32)
    kernels.execute(linear(B.end(B.store(B.at(B.param(0, (9,), dt.int32), i), B.const(1)), i)), [out, 0], [0, n], tier=tier)
    assert out.tolist() == [1] * max(0, n) + [0] * (9 - max(0, n))


@pytest.mark.parametrize("d", [dt.int32, dt.uint64, dt.float32, dt.float64], ids=str)
def test_work_items_sum_atomically_R56(kernels, tier: str, d: dt.DType) -> None:
    """512 groups of 8 lanes add into 3 elements: without atomic sums some would be lost."""
    out, x = B.param(0, (3,), d), B.param(1, (4096,), d)
    g, i = B.range_(512, 0, AxisType.GLOBAL), B.range_(8, 1, AxisType.LOCAL)
    at = B.add(B.mul(g, B.index(8)), i)
    add = UOp(Op.ATOMICADD, (B.at(out, B.mod(at, B.index(3))), B.load(B.at(x, at))))
    got, given = np.zeros(3, d.name), np.ones(4096, d.name)
    kernels.execute(linear(B.end(B.end(add, i), g)), [got, given], tier=tier)
    assert got.tolist() == [1366, 1365, 1365]


def numbered() -> UOp:
    """p0[k] = k for the number k of the work-item, of 4 groups of 2 by 8 lanes."""
    g, low, high = special("gidx0", B.index(4)), special("lidx0", B.index(2)), special("lidx1", B.index(8))
    where = B.add(B.mul(g, B.index(16)), B.add(B.mul(low, B.index(8)), high))
    return linear(B.store(B.at(B.param(0, (64,), dt.int32), where), UOp(Op.CAST, (where,), A.CastArg(dt.int32))))


def group_sums() -> UOp:
    """A GROUP_REDUCE: every lane adds its part to one local element, and after the barrier lane 0 stores the sum."""
    out, x, total = B.param(0, (64,), dt.int32), B.param(1, (64,), dt.int32), local(1, dt.int32, 78)
    g, i = B.range_(4, 0, AxisType.GLOBAL), B.range_(16, 1, AxisType.GROUP_REDUCE)
    first = B.eq(i, B.index(0))
    ready = B.after(total, UOp(Op.BARRIER, (B.store(B.at(total, 0), B.const(0), first),)))
    add = UOp(Op.ATOMICADD, (B.at(ready, 0), B.load(B.at(x, B.add(B.mul(g, B.index(16)), i)))))
    done = B.after(total, UOp(Op.BARRIER, (add,)))
    stored = B.store(B.at(out, g), B.load(B.at(done, 0)), first)
    return linear(B.end(B.end(stored, i), g))


# fmt: off
WORKGROUPS = {
    "local-memory": (reversal(4, 16), lambda x: x.reshape(4, 16)[:, ::-1].ravel()),
    "specials":     (numbered(),      lambda x: np.arange(64)),
    "group-sums":   (group_sums(),    lambda x: np.concatenate((x.reshape(4, 16).sum(1), np.zeros(60)))),
}
# fmt: on


@pytest.mark.parametrize("name", WORKGROUPS)
def test_workgroups_do_what_the_interpreter_of_kernels_does(kernels, tier: str, name: str) -> None:
    kernel, expected = WORKGROUPS[name]
    x, out = np.arange(64, dtype=np.int32) * 3, np.zeros(64, np.int32)
    given = {"p0": out.copy(), "p1": x}
    meant = interpreted(kernel, {k: given[k] for k in given if k == "p0" or name != "specials"}).buffers["p0"]
    kernels.execute(kernel, [out, x][: 1 if name == "specials" else 2], tier=tier)
    assert out.tolist() == meant.tolist() == expected(x).tolist()


@pytest.mark.parametrize("d", [dt.int8, dt.uint8, dt.int16, dt.uint16], ids=str)
@pytest.mark.parametrize("space", [A.AddrSpace.GLOBAL, A.AddrSpace.LOCAL], ids=str)
def test_narrow_elements_are_summed_atomically_beside_their_neighbours_R56(
    kernels, tier: str, d: dt.DType, space: A.AddrSpace
) -> None:
    """Elements that share a word: an exchange of the word must keep the sums of the others, and sums wrap (R05)."""
    out, x, n = B.param(0, (5,), d), B.param(1, (1280,), d), 5
    i = B.range_(1280 // n if space is A.AddrSpace.GLOBAL else 256, 0, AxisType.LOCAL)
    if space is A.AddrSpace.LOCAL:
        tile = local(n, d, 91)
        clear = [B.store(B.at(tile, k), B.const(0, d), B.eq(i, B.index(k))) for k in range(n)]
        memory = B.after(tile, UOp(Op.BARRIER, tuple(clear)))
    else:
        memory = out
    adds = [UOp(Op.ATOMICADD, (B.at(memory, k), B.load(B.at(x, B.add(B.mul(i, B.index(n)), B.index(k)))))) for k in range(n)]
    done: UOp = UOp(Op.GROUP, tuple(adds))
    if space is A.AddrSpace.LOCAL:
        sums = B.after(tile, UOp(Op.BARRIER, tuple(adds)))
        done = UOp(Op.GROUP, tuple(B.store(B.at(out, k), B.load(B.at(sums, k)), B.eq(i, B.index(0))) for k in range(n)))
    rng = np.random.default_rng(5)
    given, got = rng.integers(0, 100, 1280).astype(d.name), np.zeros(n, d.name)
    kernels.execute(linear(B.end(done, i)), [got, given], tier=tier)
    assert got.tolist() == given.reshape(-1, n).sum(0, dtype=d.name).tolist()
