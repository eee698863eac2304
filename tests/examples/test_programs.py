"""The compositions and collectives of the specification, as `.uops` files, run on arrays and equal NumPy's results."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from uops.interp import run
from uops.spec.ir import build as b
from uops.spec.ir import dtypes as dt
from uops.spec.ir.node import UOp
from uops.spec.ir.text import parse_file, show
from uops.spec.rows.collectives import COLLECTIVES
from uops.spec.rows.compositions import COMPOSITIONS, arange, gather, gemm, prefix_sum, scatter_add
from uops.spec.verify.dialects import Dialect
from uops.spec.verify.verifier import verify

FILES = Path(__file__).parents[2] / "examples" / "programs"
D = ("GPU:0", "GPU:1", "GPU:2", "GPU:3")
N, S = len(D), 8
RNG = np.random.default_rng(5)

Numpy = Callable[[dict[str, Any]], Any]


def _f32(*shape: int) -> Any:
    return RNG.integers(-8, 8, shape).astype(np.float32)


def _add_at(i: dict[str, Any]) -> Any:
    out = i["p0"].copy()
    inside = (i["p1"] >= 0) & (i["p1"] < len(out))
    np.add.at(out, i["p1"][inside], i["p2"][inside])
    return out


def _take(i: dict[str, Any]) -> Any:
    inside = (i["p1"] >= 0) & (i["p1"] < len(i["p0"]))
    return np.where(inside, i["p0"][np.where(inside, i["p1"], 0)], np.float32(0))


def _param(k: int, *shape: int) -> UOp:
    return b.param(k, shape, dt.float32)


INDEX = np.array([3, 0, 9, -1, 3, 4, 99], np.int32)
IDX = b.param(1, (7,), dt.int32)
_ONE = b.buffer(N * S, dt.int32, "CPU", unique=1)
_MANY = b.buffer(S, dt.int32, D, unique=1)
_PARTS = np.arange(N * S, dtype=np.int32) * 3 - 7

#: name -> graph, inputs, what NumPy gives
PROGRAMS: dict[str, tuple[UOp, dict[str, Any], Numpy]] = {
    "gemm": (gemm(_param(0, 5, 7), _param(1, 7, 3)), {"p0": _f32(5, 7), "p1": _f32(7, 3)}, lambda i: i["p0"] @ i["p1"]),
    "prefix_sum": (prefix_sum(_param(0, 11)), {"p0": _f32(11)}, lambda i: np.cumsum(i["p0"])),
    "arange": (arange(13), {}, lambda i: np.arange(13, dtype=np.int32)),
    "gather": (gather(_param(0, 10), IDX), {"p0": _f32(10), "p1": INDEX}, _take),
    "scatter_add": (
        scatter_add(_param(0, 10), IDX, _param(2, 7)),
        {"p0": _f32(10), "p1": INDEX, "p2": _f32(7)},
        _add_at,
    ),
    **{
        f"collective_{name}": (f(_ONE if name in ("broadcast", "scatter") else _MANY, D), {"b1": _PARTS}, result)
        for (name, f), result in zip(
            COLLECTIVES.items(),
            (
                lambda i: i["b1"],
                lambda i: i["b1"],
                lambda i: i["b1"],
                lambda i: i["b1"].reshape(N, S).sum(0, dtype=np.int32),
                lambda i: i["b1"],
                lambda i: i["b1"].reshape(N, S).sum(0, dtype=np.int32),
                lambda i: i["b1"].reshape(N, S).sum(0, dtype=np.int32),
            ),
            strict=True,
        )
    },
}
#: name -> device and axis of the result, as the listing's comment says
PLACED = {
    "broadcast": (D, None), "scatter": (D, 0), "gather": (D[0], None), "reduce": (D[0], None),
    "allgather": (D, None), "reduce_scatter": (D, 0), "allreduce": (D, None),
}  # fmt: skip


def test_every_composition_and_collective_has_a_program() -> None:
    assert set(PROGRAMS) == set(COMPOSITIONS) | {f"collective_{n}" for n in COLLECTIVES}


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_file_is_the_listing_and_its_result_is_numpys(name: str, request: pytest.FixtureRequest) -> None:
    graph, inputs, expected = PROGRAMS[name]
    path = FILES / f"{name}.uops"
    if request.config.getoption("--update-golden"):
        path.write_text(show(graph, types=True))
    loaded = parse_file(path)
    assert loaded is graph
    verify(loaded, Dialect.TENSOR)
    (got,) = run(loaded, inputs).values
    want = expected(inputs)
    assert got.dtype == want.dtype
    np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("name", PLACED)
def test_a_collective_ends_where_its_listing_says(name: str) -> None:
    graph, _, _ = PROGRAMS[f"collective_{name}"]
    assert (graph.device, graph.axis) == PLACED[name]


@pytest.mark.parametrize("name", [n for n in PROGRAMS if n in COMPOSITIONS])
def test_compiled_compositions_give_numpys_result(name: str) -> None:
    import uops

    graph, inputs, expected = PROGRAMS[name]
    (got,) = uops.compile(graph, backend="llvm")(inputs).values
    np.testing.assert_array_equal(got, expected(inputs))
