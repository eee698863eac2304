"""Each claim of a composition and of a collective, on arrays, by the interpreter."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from uops.interp import run
from uops.spec.errors import SpecError
from uops.spec.ir import build as b
from uops.spec.ir import dtypes as dt
from uops.spec.ir.node import UOp
from uops.spec.rows.collectives import COLLECTIVES
from uops.spec.rows.compositions import arange, gather, gemm, prefix_sum, scatter_add
from uops.spec.rows.rows import NAMED_ROWS
from uops.spec.verify.verifier import verify

D = ("d0", "d1", "d2")
N, S = len(D), 6
NAN, INF = float("nan"), float("inf")


def _vector(slot: int, n: int, dtype: dt.DType = dt.float32) -> UOp:
    return b.param(slot, (n,), dtype)


def _value(graph: UOp, *inputs: Any) -> Any:
    return run(graph, {f"p{k}": np.asarray(x) for k, x in enumerate(inputs)}).values[0]


# -------------------------------------------------------------------------------------------------------------- compositions


def _gemm_multiplies() -> None:
    x, y = np.arange(6, dtype=np.float32).reshape(2, 3), np.arange(12, dtype=np.float32).reshape(3, 4) - 5
    got = _value(gemm(b.param(0, (2, 3), dt.float32), b.param(1, (3, 4), dt.float32)), x, y)
    assert np.array_equal(got, [[sum(x[m, k] * y[k, n] for k in range(3)) for n in range(4)] for m in range(2)])


def _gemm_sums_in_the_dtype_of_the_product() -> None:
    t = b.param(0, (2, 3), dt.uint8), b.param(1, (3, 2), dt.uint8)
    assert gemm(*t).dtype is dt.uint8
    assert _value(gemm(*t), np.full((2, 3), 9, np.uint8), np.full((3, 2), 10, np.uint8)).tolist() == [[270 % 256] * 2] * 2


def _prefix_sum_adds() -> None:
    assert _value(prefix_sum(_vector(0, 4)), np.float32([1, 2, 4, 8])).tolist() == [1, 3, 7, 15]


def _prefix_sum_of_nothing() -> None:
    assert _value(prefix_sum(_vector(0, 0)), np.zeros(0, np.float32)).tolist() == []


def _arange_counts() -> None:
    assert [_value(arange(n)).tolist() for n in (1, 5)] == [[0], [0, 1, 2, 3, 4]]


def _arange_of_nothing() -> None:
    assert _value(arange(0)).shape == (0,)


#: Positions of dtype index; the first is out of range, but not modulo 2^32.
_FAR = b.stack(b.index(2**32 + 1), b.index(2))


def _gathered(t: list[float], idx: list[int]) -> list[float]:
    graph = gather(_vector(0, len(t)), _vector(1, len(idx), dt.int32))
    return list(map(float, _value(graph, np.float32(t), np.int32(idx))))


def _gather_takes() -> None:
    assert _gathered([5, 6, 7], [2, 0, 0, 1]) == [7, 5, 5, 6]


def _gather_out_of_range() -> None:
    assert _gathered([5, 6, 7], [3, -1, 1]) == [0, 0, 6]
    assert _value(gather(_vector(0, 3), _FAR), np.float32([5, 6, 7])).tolist() == [0, 7]


def _gather_leaves_the_unselected_alone() -> None:
    assert _gathered([NAN, INF, 7], [2, 2]) == [7, 7]


def _scattered(t: list[float], idx: list[int], val: list[float]) -> list[float]:
    graph = scatter_add(_vector(0, len(t)), _vector(1, len(idx), dt.int32), _vector(2, len(val)))
    return list(map(float, _value(graph, np.float32(t), np.int32(idx), np.float32(val))))


def _scatter_add_adds() -> None:
    assert _scattered([1, 2, 3], [2, 0, 2], [10, 20, 30]) == [21, 2, 43]


def _scatter_add_out_of_range() -> None:
    assert _scattered([1, 2], [2, -1], [10, 20]) == [1, 2]
    graph = scatter_add(_vector(0, 3), _FAR, _vector(1, 2))
    assert _value(graph, np.float32([1, 2, 3]), np.float32([10, 20])).tolist() == [1, 2, 23]


def _scatter_add_leaves_the_unselected_alone() -> None:
    got = _scattered([1, 2], [0, 5, 9], [1, NAN, INF])
    assert got == [2, 2]


# --------------------------------------------------------------------------------------------------------------- collectives

#: Name -> True if its operand is on all devices; extent, device and axis of its result.
RESULTS: dict[str, tuple[bool, int, Any, int | None]] = {
    "broadcast": (False, S, D, None),
    "scatter": (False, S, D, 0),
    "gather": (True, N * S, D[0], None),
    "reduce": (True, S, D[0], None),
    "allgather": (True, N * S, D, None),
    "reduce_scatter": (True, S, D, 0),
    "allreduce": (True, S, D, None),
}


def _operand(name: str, s: int = S) -> UOp:
    on_all, *_ = RESULTS[name]
    return b.buffer(s, dt.float32, device=D, unique=0) if on_all else b.param(0, (s,), dt.float32, device=D[0])


def _collective(name: str) -> tuple[Any, Any]:
    """The operand's elements and the result's."""
    on_all, *_ = RESULTS[name]
    x = np.arange(N * S if on_all else S, dtype=np.float32) ** 2
    graph = COLLECTIVES[name](_operand(name), D)
    return x, run(graph, {"b0" if on_all else "p0": x}).values[0]


def _has_its_place(name: str) -> None:
    _, extent, device, axis = RESULTS[name]
    result = COLLECTIVES[name](_operand(name), D)
    verify(result)
    assert (result.shape, result.device, result.axis) == ((extent,), device, axis)


def _keeps_every_element(name: str) -> None:
    x, got = _collective(name)
    assert np.array_equal(got, x)


def _adds_the_shards(name: str) -> None:
    x, got = _collective(name)
    assert np.array_equal(got, x.reshape(N, S).sum(0))


def _needs_equal_parts(name: str) -> None:
    verify(COLLECTIVES[name](_operand(name), D))
    with pytest.raises(SpecError, match=r"R75|LOAD\.C7"):
        verify(COLLECTIVES[name](_operand(name, S + 1), D))


_MEANINGS = {name: _adds_the_shards if "reduce" in name else _keeps_every_element for name in RESULTS}
_CHECKS = {name: (_has_its_place, _MEANINGS[name], _needs_equal_parts) for name in RESULTS}

HOLDS: dict[str, Callable[[], None]] = {
    "COMPOSITION.GEMM.C1": _gemm_multiplies,
    "COMPOSITION.GEMM.C2": _gemm_sums_in_the_dtype_of_the_product,
    "COMPOSITION.PREFIX_SUM.C1": _prefix_sum_adds,
    "COMPOSITION.PREFIX_SUM.C2": _prefix_sum_of_nothing,
    "COMPOSITION.ARANGE.C1": _arange_counts,
    "COMPOSITION.ARANGE.C2": _arange_of_nothing,
    "COMPOSITION.GATHER.C1": _gather_takes,
    "COMPOSITION.GATHER.C2": _gather_out_of_range,
    "COMPOSITION.GATHER.C3": _gather_leaves_the_unselected_alone,
    "COMPOSITION.SCATTER_ADD.C1": _scatter_add_adds,
    "COMPOSITION.SCATTER_ADD.C2": _scatter_add_out_of_range,
    "COMPOSITION.SCATTER_ADD.C3": _scatter_add_leaves_the_unselected_alone,
} | {
    claim.id: lambda name=name, check=check: check(name)  # type: ignore[misc]
    for name in RESULTS
    for claim, check in zip(NAMED_ROWS[f"Collective/{name}"].claims, _CHECKS[name])
}


def test_every_claim_of_a_graph_has_a_test() -> None:
    rows = [row for row in NAMED_ROWS.values() if row.family in ("Composition", "Collective")]
    assert set(HOLDS) == {claim.id for row in rows for claim in row.claims}


@pytest.mark.parametrize("id", HOLDS)
def test_claim_holds(id: str) -> None:
    HOLDS[id]()
