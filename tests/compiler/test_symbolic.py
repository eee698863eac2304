"""Variables in shapes (R48): one compiled program serves every value within their bounds, at each stage and on the llvm backend."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import pytest

from uops.backends.llvm.binding import LlvmTier
from uops.backends.llvm.target import LlvmTarget
from uops.compiler import Config, compile
from uops.compiler.rewrite.rule import Rule
from uops.compiler.rewrite.rules import INDEXING
from uops.compiler.runtime.arguments import evaluate_shape
from uops.compiler.runtime.program import Compiled
from uops.fuzz.oracles.relations import run_without_index_or_selection_rule
from uops.interp import run
from uops.spec.errors import Trap
from uops.spec.ir import build as b
from uops.spec.ir import dtypes as dt
from uops.spec.ir.node import UOp, toposort
from uops.spec.ir.ops import Op

F32, I32 = dt.float32, dt.int32
N, M = b.variable("n", 1, 40), b.variable("m", 1, 20)
VALUES = [(1, 1), (3, 7), (16, 16), (33, 19), (40, 20), (2, 20)]


def p(slot: int, *shape: Any, dtype: dt.DType = F32) -> UOp:
    return b.param(slot, shape, dtype)


def gemm(x: UOp, y: UOp) -> UOp:
    (rows, k), (_, columns) = x.shape, y.shape
    product = b.mul(b.reshape(x, (rows, k, 1)), b.reshape(y, (1, k, columns)))
    return b.reshape(b.reduce(product, Op.ADD, (1,)), (rows, columns))


def softmax(x: UOp) -> UOp:
    e = b.exp2(b.sub(x, b.reduce(x, Op.MAX, (1,))))
    return b.div(e, b.reduce(e, Op.ADD, (1,)))


def layernorm(x: UOp, columns: int) -> UOp:
    centred = b.sub(x, b.mul(b.reduce(x, Op.ADD, (1,)), 1 / columns))
    return b.div(centred, b.sqrt(b.add(b.mul(b.reduce(b.mul(centred, centred), Op.ADD, (1,)), 1 / columns), 1e-5)))


def cat(x: UOp, y: UOp) -> UOp:
    rows, columns = b.add(x.shape[0], y.shape[0]), x.shape[1]
    return b.add(b.pad(x, (0, 0), (rows, columns)), b.pad(y, (x.shape[0], 0), (rows, columns)))


def attention(q: UOp, k: UOp, v: UOp) -> UOp:
    return gemm(softmax(gemm(q, b.permute(k, (1, 0)))), v)


#: Programs with a batch, a sequence or an inner extent that varies.
PROGRAMS: dict[str, UOp] = {
    "product, its rows": gemm(p(0, N, 16), p(1, 16, 24)),
    "product, its columns": gemm(p(0, 8, 16), p(1, 16, N)),
    "product, what is summed": gemm(p(0, 8, N), p(1, N, 24)),
    "product, all extents": gemm(p(0, N, M), p(1, M, N)),
    "product of a product": gemm(gemm(p(0, N, 16), p(1, 16, 24)), p(2, 24, M)),
    "softmax of as many rows": softmax(p(0, N, 16)),
    "softmax of rows as long": softmax(p(0, 8, N)),
    "layernorm of as many rows": layernorm(p(0, N, 32), 32),
    "attention over a sequence": attention(p(0, N, 8), p(1, N, 8), p(2, N, 8)),
    "sum of all": b.reduce(p(0, N, M), Op.ADD, (0, 1)),
    "sum of columns": b.reduce(p(0, N, 16), Op.ADD, (0,)),
    "cat": cat(p(0, N, 4), p(1, M, 4)),
    "axes merged": b.reshape(b.exp2(p(0, N, 4)), (b.mul(N, 4),)),
    "permuted": b.permute(b.exp2(p(0, N, M)), (1, 0)),
    "flipped": b.flip(b.exp2(p(0, N, M)), (True, True)),
    "a part from the variable on": b.shrink(b.exp2(p(0, 60)), (N,), (M,)),
    "padded before": b.pad(p(0, N), (M,), (b.add(N, M),)),
    "masked below the variable": b.where(b.lt(p(0, 40, dtype=I32), b.cast(N, I32)), 1.0, 0.0),
}


@functools.cache
def compiled(name: str) -> Compiled:
    return compile(PROGRAMS[name], LlvmTarget(LlvmTier.FAST), Config(verify=True, reuse=False))


def inputs(graph: UOp, values: dict[str, int]) -> dict[str, Any]:
    """Normal data of the shapes that these values give, and the values of the variables that the graph has."""
    rng, found = np.random.default_rng(0), dict[str, Any]()
    for u in toposort(graph):
        if u.op is not Op.PARAM:
            continue
        if u.arg.name is not None:
            found[u.arg.name] = values[u.arg.name]
            continue
        shape = [values[n.arg.name] if isinstance(n, UOp) else n for n in u.shape]
        found[f"p{u.arg.slot}"] = (rng.standard_normal(shape) * (1 if u.dtype is F32 else 20)).astype(u.dtype.name)
    return found


@pytest.mark.parametrize("name", PROGRAMS)
def test_one_program_serves_all_values_of_its_variables(name: str) -> None:
    for n, m in VALUES:
        given = inputs(PROGRAMS[name], {"n": n, "m": m})
        wanted, got = run(PROGRAMS[name], given).values[0], compiled(name)(given).values[0]
        np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", ["product, its rows", "softmax of rows as long"])
@pytest.mark.parametrize("value", [0, 41])
def test_a_value_outside_of_its_bounds_is_a_trap(name: str, value: int) -> None:
    given = inputs(PROGRAMS[name], {"n": value, "m": 1})
    with pytest.raises(Trap, match="n"):
        compiled(name)(given)


def test_symbolic_programs_fuse_as_fixed_ones_do() -> None:
    counts = {"product, its rows": 1, "softmax of as many rows": 1, "layernorm of as many rows": 1, "attention over a sequence": 3}
    assert {name: len(compiled(name).program.src) for name in counts} == counts


@pytest.mark.parametrize("rule", [r for r in INDEXING if r.name.startswith("fold-")], ids=lambda r: r.name)
def test_the_size_of_a_result_is_computed_without_rewriting(rule: Rule) -> None:
    """What a size is under values of its variables is no matter of which rewrite rules there are."""
    n = b.variable("n", -2, 5)
    sizes = {
        "product": (b.mul(n, n), 9), "sum": (b.add(n, 7), 10), "difference": (b.sub(7, n), 4), "quotient": (b.idiv(n, 2), 1),
        "remainder": (b.mod(n, 2), 1), "greater": (b.maximum(n, 4), 4), "shifted": (b.shl(n, 1), 6),
        "byte": (b.cast(b.variable("k", 0, 255, dtype=dt.uint8), dt.index), 200),
    }  # fmt: skip
    with run_without_index_or_selection_rule(rule):
        found = evaluate_shape(tuple(u for u, _ in sizes.values()), {"n": 3, "k": 200})
    assert dict(zip(sizes, found, strict=True)) == {name: wanted for name, (_, wanted) in sizes.items()}


def test_a_size_without_a_value_is_a_trap() -> None:
    with pytest.raises(Trap, match=r"a size has no value .*\[3, -1\] \(R29\)"):
        evaluate_shape((b.shl(b.index(3), b.variable("n", -1, 2)),), {"n": -1})
