"""The constant folder against IEEE arithmetic of the machine, and against hand-made values where Python has none."""

import math
import struct
from typing import Any

import numpy as np
import pytest

from uops.backends.arrays import STORAGE
from uops.compiler.rewrite.fold import FOLD, decode_bits, encode_bits, fold_constant
from uops.spec.errors import CompileError
from uops.spec.ir import dtypes as dt
from uops.spec.ir.args import BitcastArg, CastArg, ConstArg
from uops.spec.ir.dtypes import DType
from uops.spec.ir.node import UOp
from uops.spec.ir.ops import ALU, Op
from uops.spec.rows.accuracy import ACCURACY, Accuracy

EDGES = [
    0.0,
    -0.0,
    1.0,
    -1.0,
    1.5,
    3.0,
    1e-3,
    0.1,
    -7.25,
    65504.0,
    1e5,
    1e30,
    -3e38,
    1e-40,
    2.0**-149,
    math.inf,
    -math.inf,
    math.nan,
]
NARROW = [d for d in dt.FLOATS if d.bits <= 16]


def apply(op: Op, d: DType, *values: Any) -> Any:
    return fold_constant(UOp(op, tuple(UOp(Op.CONST, (), ConstArg(v, d)) for v in values)))


def same(a: float, b: float) -> bool:
    return (a != a and b != b) or struct.pack("<d", a) == struct.pack("<d", b)


@pytest.mark.parametrize(("d", "numpy"), [(dt.float32, np.float32), (dt.float64, np.float64)])
@pytest.mark.parametrize("op", [Op.ADD, Op.SUB, Op.MUL, Op.DIV, Op.SQRT, Op.RECIP, Op.TRUNC])
def test_float_operations_round_once_as_the_machine_does(op: Op, d: DType, numpy: Any) -> None:
    f: dict[Op, Any] = {
        Op.ADD: np.add, Op.SUB: np.subtract, Op.MUL: np.multiply, Op.DIV: np.divide, Op.SQRT: np.sqrt, Op.RECIP: np.reciprocal,
        Op.TRUNC: np.trunc,
    }  # fmt: skip
    edges = [float(numpy(x)) for x in EDGES]
    with np.errstate(all="ignore"):
        for a in edges:
            for c in edges if f[op].nin == 2 else [None]:
                wanted = float(f[op](numpy(a)) if c is None else f[op](numpy(a), numpy(c)))
                got = apply(op, d, a) if c is None else apply(op, d, a, c)
                assert same(got, wanted), (op, a, c, got, wanted)


@pytest.mark.parametrize("d", NARROW, ids=str)
def test_every_small_float_has_its_bits(d: DType) -> None:
    bits = np.arange(1 << d.bits, dtype=np.uint32).astype(f"u{d.itemsize}")
    with np.errstate(invalid="ignore"):
        values = bits.view(STORAGE[d]).astype(np.float64)
    for word, value in zip(bits.tolist(), values.tolist()):
        assert same(float(decode_bits(word, d)), value)
        if value == value:
            assert encode_bits(value, d) == word


def test_conversions_round_once_where_common_tools_round_twice() -> None:
    n = 2**30 + 2**22 + 1
    node = UOp(Op.CAST, (UOp(Op.CONST, (), ConstArg(n, dt.int32)),), CastArg(dt.bfloat16))
    assert fold_constant(node) == 2**30 + 2**23


@pytest.mark.parametrize(
    ("op", "d", "values", "wanted"),
    [
        (Op.IDIV, dt.int8, (-7, 2), -4),
        (Op.IDIV, dt.int8, (-128, -1), -128),
        (Op.IDIV, dt.int8, (5, 0), 0),
        (Op.MOD, dt.int8, (-7, 2), 1),
        (Op.MOD, dt.int8, (7, -2), -1),
        (Op.MOD, dt.int8, (5, 0), 5),
        (Op.ADD, dt.uint8, (255, 1), 0),
        (Op.SHL, dt.int8, (1, 7), -128),
        (Op.SHL, dt.int8, (1, 8), 0),
        (Op.SHR, dt.int8, (-1, -1), -1),
        (Op.SHR, dt.uint8, (255, 9), 0),
        (Op.ADD, dt.bool_, (True, True), True),
        (Op.MUL, dt.bool_, (True, False), False),
        (Op.CMPGE, dt.float32, (math.nan, 0.0), False),
        (Op.CMPNE, dt.float32, (math.nan, math.nan), True),
        (Op.MULACC, dt.float32, (1.0 + 2.0**-12, 1.0 + 2.0**-12, -1.0), 2.0**-11 + 2.0**-24),
        (Op.MULACC, dt.float32, (2.0, 4.0, math.inf), math.inf),
        (Op.MUL, dt.fp8e4m3, (448.0, 2.0), math.nan),
        (Op.IDIV, dt.index, (-(2**80), 3), -(2**80) // 3),
    ],
)
def test_rulings(op: Op, d: DType, values: tuple[Any, ...], wanted: Any) -> None:
    got = apply(op, d, *values)
    assert got == wanted or (got != got and wanted != wanted)


@pytest.mark.parametrize(("value", "wanted"), [(1e9, 127), (-1e9, -128), (math.nan, 0), (-3.7, -3), (math.inf, 127)])
def test_floats_saturate_into_integers(value: float, wanted: int) -> None:
    assert fold_constant(UOp(Op.CAST, (UOp(Op.CONST, (), ConstArg(value, dt.float64)),), CastArg(dt.int8))) == wanted


def test_what_has_no_one_answer_or_no_width_is_not_folded() -> None:
    x = UOp(Op.CONST, (), ConstArg(0.5, dt.float32))
    for op in (Op.EXP2, Op.LOG2, Op.SIN, Op.POW, Op.THREEFRY):
        assert fold_constant(UOp(op, (x, x) if op in (Op.POW, Op.THREEFRY) else (x,))) is None
    infinite = UOp(Op.CONST, (), ConstArg(math.inf, dt.float32))
    assert fold_constant(UOp(Op.CAST, (infinite,), CastArg(dt.index))) is None
    with pytest.raises(CompileError, match="R08"):
        apply(Op.MUL, dt.index, 2**4000, 2**96)
    assert apply(Op.MUL, dt.index, 2**4000, -(2**95)) == -(2**4095)
    assert apply(Op.SHL, dt.index, 0, 10**9) == 0
    negative = UOp(Op.CONST, (), ConstArg(-1, dt.index))
    assert fold_constant(UOp(Op.SHL, (negative, negative))) is None
    for count in (UOp(Op.CONST, (), ConstArg(-1, d)) for d in (dt.int8, dt.int32)):  # a Trap of index arithmetic (R29)
        assert fold_constant(UOp(Op.SHL, (negative, count))) is fold_constant(UOp(Op.SHR, (negative, count))) is None
    word = UOp(Op.CONST, (), ConstArg(7, dt.uint16))
    assert fold_constant(UOp(Op.BITCAST, (word,), BitcastArg(dt.uint8))) is None


def test_the_table_covers_every_op_that_has_one_answer() -> None:
    approximated = {op for op, accuracy in ACCURACY.items() if accuracy is Accuracy.APPROXIMATED}
    assert set(FOLD) == ALU - approximated - {Op.THREEFRY, Op.MIN} | {Op.BITCAST}
