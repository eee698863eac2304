"""The prover's meaning of each op against the exact interpreter, and so against all who agree with that: a fourth text.

Operands of together at most 16 bits are compared exhaustively, in both representations of machine integers; wider ones on the
product of edge values, with the solver itself as the evaluator.
"""

from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import pytest
from prover_meaning import by_numpy, by_solver

from uops.compiler.prove.model import Representation
from uops.compiler.prove.semantics import BITS, BOOL, FLOAT, TABLES
from uops.compiler.prove.solver import smt
from uops.compiler.prove.solver.solver import SolverWorker
from uops.fuzz.oracles.agreement import (
    OPS,
    enumerate_narrow_or_thin_edge_operand_bits,
    find_disagreements_with_exact,
    list_op_signatures,
)
from uops.spec.ir import dtypes as dt
from uops.spec.ir.dtypes import DType
from uops.spec.ir.ops import Op
from uops.spec.rows.accuracy import ACCURACY, Accuracy

BY_OP: dict[Op, list[Any]] = defaultdict(list)
for _signature in list_op_signatures():
    BY_OP[_signature[0]].append(_signature)
#: Ops that are some function to the prover (R17, R18), and the one that it does not model.
UNKNOWN = {op for op, accuracy in ACCURACY.items() if accuracy is Accuracy.APPROXIMATED} | {Op.THREEFRY}
KNOWN = [op for op in OPS if op not in UNKNOWN]


def _small(kinds: tuple[DType, ...], result: DType) -> bool:
    return all(k.bits == 8 for k in (*kinds, result))


def _exhausted(op: Op, machine: Representation) -> int:
    checked = 0
    for _, kinds, result in BY_OP[op]:
        if not _small(kinds, result) or (machine is Representation.WHOLE and any(d.is_float for d in (*kinds, result))):
            continue
        values = enumerate_narrow_or_thin_edge_operand_bits(op, kinds)
        found = find_disagreements_with_exact(by_numpy(machine), op, kinds, result, values)
        assert not found, "\n".join(map(str, found))
        checked += len(values[0])
    return checked


@pytest.mark.parametrize("op", KNOWN, ids=lambda o: o.name)
def test_the_prover_agrees_on_all_values_of_eight_bits(op: Op) -> None:
    assert _exhausted(op, Representation.BITS) > 0


@pytest.mark.parametrize(
    "op", [op for op in KNOWN if op not in FLOAT or op in BOOL or op in TABLES[Representation.WHOLE]], ids=lambda o: o.name
)
def test_whole_numbers_that_wrap_agree_on_all_values_of_eight_bits(op: Op) -> None:
    assert _exhausted(op, Representation.WHOLE) > 0


@pytest.fixture(scope="module")
def worker() -> Iterator[SolverWorker]:
    w = SolverWorker()
    yield w
    w.close()


@pytest.mark.parametrize("op", KNOWN, ids=lambda o: o.name)
def test_the_solver_agrees_on_edges_of_all_dtypes(op: Op, worker: SolverWorker) -> None:
    checked = 0
    for _, kinds, result in BY_OP[op]:
        if len(kinds) > 1 and _small(kinds, result):
            continue
        most = 40 if op in (Op.CAST, Op.WHERE) else 150
        values = tuple(v[:: max(1, len(v) // most)][:most] for v in enumerate_narrow_or_thin_edge_operand_bits(op, kinds, most))
        found = find_disagreements_with_exact(by_solver(worker), op, kinds, result, values)
        assert not found, "\n".join(map(str, found))
        checked += len(values[0])
    assert checked > 0 or all(_small(kinds, result) for _, kinds, result in BY_OP[op])


@pytest.mark.parametrize(
    ("table", "op", "kinds", "row"),
    [
        (BITS, Op.IDIV, (dt.int8, dt.int8), lambda m, d, a, b: smt.app("bvsdiv", a, b, sort=a.sort)),
        (BITS, Op.MOD, (dt.int8, dt.int8), lambda m, d, a, b: smt.app("bvsrem", a, b, sort=a.sort)),
        (BITS, Op.MAX, (dt.uint8, dt.uint8), lambda m, d, a, b: smt.ite(smt.compare("bvslt", a, b), b, a)),
        (FLOAT, Op.CMPGE, (dt.fp8e5m2, dt.fp8e5m2), lambda m, d, a, b: smt.not_(smt.compare("fp.lt", a, b))),
        (FLOAT, Op.MAX, (dt.fp8e4m3, dt.fp8e4m3), lambda m, d, a, b: smt.ite(smt.compare("fp.lt", a, b), b, a)),
    ],
    ids=["idiv", "mod", "max", "ge-nan", "max-nan"],
)
def test_a_wrong_row_is_seen(table: Any, op: Op, kinds: tuple[DType, ...], row: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(table, op, row)
    result = next(r for _, k, r in BY_OP[op] if k == kinds)
    assert find_disagreements_with_exact(
        by_numpy(Representation.BITS), op, kinds, result, enumerate_narrow_or_thin_edge_operand_bits(op, kinds)
    )
