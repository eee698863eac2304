"""The elementwise ops on LLVM: the claims about any machine, and what the text of this one says."""

import re
import struct

import pytest
from alu_claims import *  # noqa: F403 - the claims are tests
from alu_claims import COMPARE, FLOATS, INTEGER, NATIVE, REAL, UNARY_REAL, alu, ids

from uops.backends.llvm.alu import CAST, EMIT
from uops.backends.llvm.render import render
from uops.spec.errors import Unsupported
from uops.spec.ir import args as A
from uops.spec.ir import build as B
from uops.spec.ir import dtypes as dt
from uops.spec.ir.dtypes import DType
from uops.spec.ir.node import UOp
from uops.spec.ir.ops import Op


def test_casts_are_covered_for_every_pair_of_classes() -> None:
    assert set(CAST) == {a + b for a in "bsuf" for b in "bsuf"} - {"bb"}


def test_the_payload_of_a_constant_nan_fits_the_dtype() -> None:
    payload = struct.unpack("<d", struct.pack("<Q", 0x7FF0_0000_0000_0001))[0]

    def kernel(d: DType) -> UOp:
        place = B.at(B.param(0, (1,), d), 0)
        return UOp(Op.LINEAR, (place.src[0], place, B.store(place, UOp(Op.CONST, (), A.ConstArg(payload, d)))))

    assert "0x7FF8000000000000" in render(kernel(dt.float32))
    assert "0x7FF8000000000001" in render(kernel(dt.float64))


FORBIDDEN = re.compile(
    r"\b(nsw|nuw|exact|disjoint|nneg|samesign|inbounds|fast|contract|reassoc|nnan|ninf|nsz|arcp|afn|undef|poison)\b"
)


def test_no_instruction_carries_a_flag_that_licenses_poison_R05(kernels) -> None:
    cases = [(op, d, 2) for op in INTEGER for d in dt.INTS] + [(op, d, 2) for op in (*REAL, *COMPARE) for d in FLOATS]
    cases += [(op, d, 2) for op in (Op.SHL, Op.SHR, *COMPARE) for d in dt.INTS]
    cases += [(op, d, 1) for op in (*UNARY_REAL, Op.EXP2) for d in FLOATS] + [(Op.NEG, d, 1) for d in dt.INTS]
    cases += [(Op.MULACC, d, 3) for d in NATIVE]
    seen = set()
    for op, d, arity in cases:
        out = dt.bool_ if op in COMPARE else d
        text = render(kernels.elementwise(4, out, (d,) * arity, alu(op)))
        assert not FORBIDDEN.search(text), text
        seen.add(op)
    assert seen | {Op.CAST, Op.BITCAST, Op.WHERE, Op.NOT} == set(EMIT)


@pytest.mark.parametrize(("op", "d"), [(Op.SUB, dt.bool_), (Op.DIV, dt.int32), (Op.AND, dt.float32), (Op.XOR, dt.float64)], ids=ids)
def test_an_ill_formed_dtype_is_refused_R09_R10(kernels, op: Op, d: DType) -> None:
    with pytest.raises(Unsupported, match=f"{op.name} of {d.name}"):
        render(kernels.elementwise(4, d, (d, d), alu(op)))


@pytest.mark.parametrize("d", [d for d in dt.STORABLE if d not in NATIVE], ids=ids)
def test_a_dtype_that_selection_should_have_lowered_is_refused(kernels, d: DType) -> None:
    with pytest.raises(Unsupported, match=d.name):
        render(kernels.elementwise(4, d, (d,), lambda x: x))
