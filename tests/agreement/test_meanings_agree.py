"""Three independent texts of the elementwise ops - NumPy interpreter, exact interpreter, constant folder - agree; planted
mistakes show.

Operands of together at most 16 bits are compared exhaustively, wider ones on the product of edge values.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from uops.compiler.rewrite import fold as folder
from uops.fuzz.oracles.agreement import (
    OPS,
    enumerate_narrow_or_thin_edge_operand_bits,
    evaluate_by_interpreter,
    find_disagreements_with_exact,
    fold_each_or_minus_one_if_declined,
    list_op_signatures,
)
from uops.interp.exact import elementwise as exact
from uops.interp.ops import elementwise, rounding
from uops.spec.ir.dtypes import DType
from uops.spec.ir.ops import ALU, Op
from uops.spec.rows.accuracy import ACCURACY, Accuracy

SIGNATURES = list(list_op_signatures())
BY_OP: dict[Op, list[Any]] = defaultdict(list)
for _signature in SIGNATURES:
    BY_OP[_signature[0]].append(_signature)
#: Ops that the folder leaves to the kernels: approximated ones (R27, one node, one value), and Threefry.
NOT_FOLDED = {op for op, accuracy in ACCURACY.items() if accuracy is Accuracy.APPROXIMATED} | {Op.THREEFRY}


def _id(s: Any) -> str:
    return f"{s[0].name}-{'-'.join(d.short for d in s[1])}-{s[2].short}"


def test_every_elementwise_op_is_compared() -> None:
    assert set(BY_OP) == set(OPS)
    assert set(OPS) == ALU - {Op.MIN}


@pytest.mark.parametrize("op", OPS, ids=lambda o: o.name)
def test_the_interpreters_agree(op: Op) -> None:
    found = [
        d
        for _, kinds, result in BY_OP[op]
        for d in find_disagreements_with_exact(
            evaluate_by_interpreter, op, kinds, result, enumerate_narrow_or_thin_edge_operand_bits(op, kinds)
        )
    ]
    assert not found, "\n".join(map(str, found))


@pytest.mark.parametrize("op", OPS, ids=lambda o: o.name)
def test_the_folder_agrees(op: Op) -> None:
    answered = 0
    for _, kinds, result in BY_OP[op]:
        values = tuple(v[:: max(1, len(v) // 2000)] for v in enumerate_narrow_or_thin_edge_operand_bits(op, kinds, 1000))
        found = find_disagreements_with_exact(fold_each_or_minus_one_if_declined, op, kinds, result, values)
        assert not found, "\n".join(map(str, found))
        answered += sum(v >= 0 for v in fold_each_or_minus_one_if_declined(op, kinds, result, tuple(v[:64] for v in values)))
    assert (answered > 0) == (op not in NOT_FOLDED)


# Planted mistakes: for every op, each text in turn is made wrong in one bit of one result, and the comparison must say so.


def _narrowest(op: Op) -> Any:
    """The signature with the fewest bits, where the comparison is exhaustive or nearly so."""
    return min(BY_OP[op], key=lambda s: sum(d.bits for d in s[1]) + s[2].bits)


def _flip_one(result: Any, where: int) -> Any:
    """`result` with the lowest bit of one element flipped."""
    a = np.array(result)
    flat = np.ascontiguousarray(a).reshape(-1).view(f"u{a.dtype.itemsize}")
    flat[where] ^= 1
    return flat.view(a.dtype).reshape(a.shape)


def _element_without_leeway(op: Op, kinds: tuple[DType, ...], result: DType) -> int:
    """A position whose result has one right bit pattern."""
    values = enumerate_narrow_or_thin_edge_operand_bits(op, kinds)
    columns = [v.tolist() for v in values]
    found = [k for k, element in enumerate(zip(*columns, strict=True)) if exact.evaluate_op(op, kinds, result, element).is_exact]
    return found[len(found) // 2]


@pytest.mark.parametrize("op", OPS, ids=lambda o: o.name)
def test_one_wrong_bit_in_the_numpy_interpreter_is_reported(op: Op, monkeypatch: pytest.MonkeyPatch) -> None:
    _, kinds, result = _narrowest(op)
    k = _element_without_leeway(op, kinds, result)
    table: Any = rounding.CASTS if op is Op.CAST else elementwise.KERNELS[op]
    key = (kinds[0], result) if op is Op.CAST else kinds[0]
    right = table[key]
    monkeypatch.setitem(table, key, lambda *xs: _flip_one(right(*xs), k))
    assert find_disagreements_with_exact(
        evaluate_by_interpreter, op, kinds, result, enumerate_narrow_or_thin_edge_operand_bits(op, kinds)
    )


@pytest.mark.parametrize("op", OPS, ids=lambda o: o.name)
def test_one_wrong_bit_in_the_exact_interpreter_is_reported(op: Op, monkeypatch: pytest.MonkeyPatch) -> None:
    _, kinds, result = _narrowest(op)
    values = enumerate_narrow_or_thin_edge_operand_bits(op, kinds)
    k = _element_without_leeway(op, kinds, result)
    target = tuple(int(v[k]) for v in values)
    right = exact.MEANING[op]

    def wrong(args: Any, out: DType, bits: Any, core: bool) -> Any:
        answer = right(args, out, bits, core)
        return answer._replace(best=answer.best ^ 1, points=(), span=None) if tuple(bits) == target else answer

    monkeypatch.setitem(exact.MEANING, op, wrong)
    assert find_disagreements_with_exact(evaluate_by_interpreter, op, kinds, result, values)


@pytest.mark.parametrize("op", [o for o in OPS if o not in NOT_FOLDED], ids=lambda o: o.name)
def test_one_wrong_value_in_the_folder_is_reported(op: Op, monkeypatch: pytest.MonkeyPatch) -> None:
    _, kinds, result = _narrowest(op)
    right: Callable[..., Any] = folder.FOLD[op]
    values = tuple(v[::97][:400] for v in enumerate_narrow_or_thin_edge_operand_bits(op, kinds))
    seen = []

    def wrong(u: Any, *numbers: Any) -> Any:
        v = right(u, *numbers)
        seen.append(v)
        if len(seen) != 5 or v is None:
            return v
        return not v if isinstance(v, bool) else type(v)(1) if v != 1 else type(v)(0)

    monkeypatch.setitem(folder.FOLD, op, wrong)
    if len(values[0]) < 5:
        values = tuple(np.resize(v, 8) for v in values)
    assert find_disagreements_with_exact(fold_each_or_minus_one_if_declined, op, kinds, result, values)
