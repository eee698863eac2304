"""Compiled programs give what the interpreter gives, bit for bit, on both targets, verified at every stage.

Only results that are exact are compared: sums of small multiples of 1/4, integers, correctly rounded operations.
"""

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from uops.backends.llvm.binding import LlvmTier
from uops.backends.llvm.target import LlvmTarget
from uops.compiler import Config, Target, compile
from uops.fuzz.generate.draw import SeededDraw
from uops.fuzz.generate.graphs import generate_tensor_graph
from uops.fuzz.generate.producers import FEATURES
from uops.interp import run
from uops.spec.ir import build as b
from uops.spec.ir import dtypes as dt
from uops.spec.ir.node import UOp, toposort
from uops.spec.ir.ops import Op
from uops.spec.result import Result
from uops.spec.rows import compositions as c

F32, I32 = dt.float32, dt.int32
Case = tuple[UOp, dict[str, Any]]
FRESH = Config(verify=True, reuse=False)


def floats(*shape: int) -> Any:
    """Small multiples of 1/4: sums and products of them are exact."""
    n = int(np.prod(shape))
    return (np.arange(n, dtype=np.float32) * 7 % 23 / 4 - 2).reshape(shape)


def ints(*shape: int, dtype: Any = np.int32) -> Any:
    return (np.arange(int(np.prod(shape))) * 37 % 61 - 30).astype(dtype).reshape(shape)


def p(slot: int, *shape: Any, dtype: dt.DType = F32) -> UOp:
    return b.param(slot, shape, dtype)


def buf(size: int, unique: int = 1, dtype: dt.DType = F32) -> UOp:
    return b.buffer(size, dtype, unique=unique)


def movement() -> dict[str, Case]:
    x, data = p(0, 2, 3, 4), {"p0": floats(2, 3, 4)}
    n = b.variable("n", 1, 6)
    y = b.param(0, (n, 2), F32)
    u = b.variable("u", 0, 255, dtype=dt.uint8)
    return {
        "permute": (b.permute(x, (2, 0, 1)), data),
        "flip": (b.flip(x, (True, False, True)), data),
        "reshape": (b.reshape(x, (4, 6)), data),
        "reshape across": (b.reshape(b.permute(x, (1, 0, 2)), (8, 3)), data),
        "expand": (b.expand(b.reshape(x, (1, 2, 3, 4)), (3, 2, 3, 4)), data),
        "pad": (b.pad(x, (1, 0, 2), (4, 3, 7)), data),
        "pad of a sum": (b.pad(b.add(x, 1.0), (0, 1, 0), (2, 5, 4)), data),
        "shrink": (b.shrink(x, (1, 0, 2), (1, 3, 2)), data),
        "shrink of pad": (b.shrink(b.pad(x, (1, 1, 1), (4, 5, 6)), (0, 2, 3), (3, 3, 3)), data),
        "index removes an axis": (b.at(x, 1, 2), data),
        "index keeps an axis": (b.at(x, b.stack(b.index(1), b.index(0), b.index(1)), 2), data),
        "stack": (b.stack(x, b.add(x, 1.0), b.flip(x, (False, True, False))), data),
        "stack indexed": (b.at(b.stack(x, b.neg(x)), 1), data),
        "replicated": (b.replicated(b.expand(b.reshape(p(0, 4), (1, 4)), (3, 4)), 0), {"p0": floats(4)}),
        "binary": (b.reshape(b.binary(bytes(range(6))), (2, 3)), {}),
        "empty": (b.add(p(0, 0, 3), 1.0), {"p0": floats(0, 3)}),
        "pad of empty": (b.pad(p(0, 0), (1,), (3,)), {"p0": floats(0)}),
        "symbolic rows": (b.reshape(b.add(y, 1.0), (b.mul(n, 2),)), {"p0": floats(3, 2), "n": 3}),
        "symbolic shrink": (b.shrink(p(0, 8), (b.sub(n, 1),), (2,)), {"p0": floats(8), "n": 4}),
        "symbolic sum": (b.reduce(y, Op.ADD, (0,)), {"p0": floats(5, 2), "n": 5}),
        "variable as a value": (b.add(b.cast(n, I32), p(0, 3, dtype=I32)), {"p0": ints(3), "n": 2}),
        "variable that wraps": (b.cast(b.add(u, u), I32), {"u": 200}),
        "variable of bytes": (b.mul(u, p(0, 3, dtype=dt.uint8)), {"u": 200, "p0": ints(3, dtype=np.uint8)}),
        "variable itself": (b.tuple_(u, b.neg(u), n), {"u": 200, "n": 3}),
        "variable as a size": (b.reduce(b.expand(b.reshape(b.const(7), (1,)), (b.cast(u, dt.index),)), Op.ADD, (0,)), {"u": 20}),
        "index result": (b.mul(b.add(b.cast(p(0, 3, dtype=I32), dt.index), 1), 3), {"p0": ints(3)}),
    }


def bits() -> dict[str, Case]:
    x32, x8 = p(0, 2, 3, dtype=dt.uint32), p(0, 2, 8, dtype=dt.uint8)
    w = p(0, 2, b.mul(b.variable("n", 0, 4), 2), dtype=dt.uint32)
    nan = np.array([0x7FC12345, 0xFF800001, 0x80000000, 1], np.uint32).view(np.float32)
    half = np.array([0x7E01, 0xFC00, 0x8000, 0x0001], np.uint16).view(np.float16)
    return {
        "bitcast same size": (b.bitcast(p(0, 4), dt.int32), {"p0": nan}),
        "bitcast narrower": (b.bitcast(x32, dt.uint8), {"p0": ints(2, 3, dtype=np.uint32)}),
        "bitcast wider": (b.bitcast(x8, dt.uint64), {"p0": ints(2, 8, dtype=np.uint8)}),
        "bitcast of symbolic rows": (
            b.bitcast(b.neg(b.bitcast(w, dt.int16)), dt.uint64),
            {"p0": ints(2, 6, dtype=np.uint32), "n": 3},
        ),
        "bitcast of a sum": (b.bitcast(b.add(x8, 1), dt.uint16), {"p0": ints(2, 8, dtype=np.uint8)}),
        "bitcast bool": (b.bitcast(p(0, 3, dtype=dt.bool_), dt.uint8), {"p0": np.array([True, False, True])}),
        "slice": (b.slice_(p(0, 8, dtype=dt.uint8), 4, 1, dt.int32), {"p0": ints(8, dtype=np.uint8)}),
        "slice narrower": (b.slice_(p(0, 3, dtype=dt.uint32), 1, 5, dt.int8), {"p0": ints(3, dtype=np.uint32)}),
        "copy keeps bits of NaN (R28)": (b.contiguous(b.flip(p(0, 4, dtype=dt.float16), (True,))), {"p0": half}),
        "where keeps bits of NaN (R28)": (
            b.where(p(1, 4, dtype=dt.bool_), p(0, 4), 1.0),
            {"p0": nan, "p1": np.array([1, 0, 1, 1], bool)},
        ),
    }


def values() -> dict[str, Case]:
    x, y, i, j = p(0, 3, 4), p(1, 4), p(0, 4, dtype=I32), p(1, 4, dtype=I32)
    data = {"p0": floats(3, 4), "p1": floats(4)}
    half = {"p0": np.array([1.0, 2048.0, 65504.0, -3.0], np.float16), "p1": np.array([0.001, 1.0, 32.0, 7.0], np.float16)}
    h0, h1 = p(0, 4, dtype=dt.float16), p(1, 4, dtype=dt.float16)
    brain = {"p0": np.array([1.0, 3.0, 257.0, -0.0]).astype(ml_dtypes.bfloat16)}
    q = p(0, 4, dtype=dt.bfloat16)
    small = {"p0": np.array([1.0, 448.0, 0.01, -5.5]).astype(ml_dtypes.float8_e4m3fn)}
    e = p(0, 4, dtype=dt.fp8e4m3)
    words = {"p0": np.array([0, 1, 2**64 - 1, 2**32], np.uint64), "p1": np.array([0, 2**64 - 1, 5, 7], np.uint64)}
    return {
        "broadcast": (b.mul(b.add(x, y), b.const(0.5)), data),
        "sum of rows": (b.reduce(x, Op.ADD, (1,)), data | {}),
        "sum of all": (b.reduce(b.mul(x, y), Op.ADD, (0, 1)), data),
        "max of columns": (b.reduce(x, Op.MAX, (0,)), data),
        "product": (b.reduce(i, Op.MUL, (0,)), {"p0": ints(4)}),
        "reduce of nothing": (b.reduce(p(0, 2, 0), Op.MAX, (1,)), {"p0": floats(2, 0)}),
        "reduce without axes": (b.reduce(x, Op.ADD, ()), data),
        "reduce of bool": (b.reduce(b.lt(x, y), Op.ADD, (1,)), data),
        "reduce then use": (b.sub(x, b.reduce(x, Op.MAX, (1,))), data),
        "two reduces in one": (b.mul(b.reduce(x, Op.ADD, (1,)), b.reduce(b.mul(x, x), Op.MAX, (1,))), data),
        "reduce of reduce": (b.reduce(b.mul(b.reduce(x, Op.ADD, (1,)), 2.0), Op.MAX, (0,)), data),
        "reduce used twice": (b.add(b.reduce(x, Op.ADD, (0,)), b.flip(b.reduce(x, Op.ADD, (0,)), (False, True))), data),
        "x == x.max() (R27)": (b.eq(b.mul(x, y), b.reduce(b.mul(x, y), Op.MAX, (0, 1))), data),
        "shared": (b.mul(b.add(x, 1.0), b.permute(b.permute(b.add(x, 1.0), (1, 0)), (1, 0))), data),
        "gemm": (c.gemm(p(0, 3, 4), p(1, 4, 2)), {"p0": floats(3, 4), "p1": floats(4, 2)}),
        "prefix sum": (c.prefix_sum(p(0, 5)), {"p0": floats(5)}),
        "arange": (c.arange(7), {}),
        "gather": (c.gather(p(0, 5), p(1, 3, dtype=I32)), {"p0": floats(5), "p1": np.array([4, 0, 9], np.int32)}),
        "scatter add": (
            c.scatter_add(p(0, 4), p(1, 3, dtype=I32), p(2, 3)),
            {"p0": floats(4), "p1": np.array([1, 1, 7], np.int32), "p2": floats(3)},
        ),
        "gather by index": (
            b.at(x, b.cast(p(1, 2, dtype=dt.uint64), dt.index)),
            {"p0": floats(3, 4), "p1": np.array([2, 0], np.uint64)},
        ),
        "gather by a gathered index": (
            b.at(p(0, 4), b.cast(b.at(j, b.cast(p(2, 3, dtype=I32), dt.index)), dt.index)),
            {"p0": floats(4), "p1": np.array([3, 2, 1, 0], np.int32), "p2": np.array([0, 3, 3], np.int32)},
        ),
        "gather by a computed index": (
            b.at(p(0, 4), b.mod(b.cast(p(1, 6, dtype=dt.int64), dt.index), 4)),
            {"p0": floats(4), "p1": ints(6, dtype=np.int64)},
        ),
        "where of a number (R14)": (
            b.where(p(1, 4, dtype=I32), y.replace(arg=p(0, 4).arg), 1.0),
            {"p0": floats(4), "p1": np.array([0, 1, -1, 0], np.int32)},
        ),
        "integer division": (
            b.stack(b.idiv(i, p(1, 4, dtype=I32)), b.mod(i, p(1, 4, dtype=I32))),
            {"p0": np.array([-7, 7, -(2**31), 5], np.int32), "p1": np.array([2, -2, -1, 0], np.int32)},
        ),
        "saturating cast": (b.cast(p(0, 4), dt.int8), {"p0": np.array([1e9, -1e9, np.nan, -3.7], np.float32)}),
        "threefry": (b.threefry(p(0, 4, dtype=dt.uint64), p(1, 4, dtype=dt.uint64)), words),
        "integer mulacc": (b.mulacc(i, i, i), {"p0": np.array([2**20, -3, 7, 2**31 - 1], np.int32)}),
        "half arithmetic": (b.div(b.mul(h0, h0), b.add(h1, h0)), half),
        "half fused": (b.mulacc(h0, h1, h1), half),
        "half sum": (b.reduce(h1, Op.ADD, (0,)), half),
        "half compare": (b.lt(h0, h1), half),
        "bfloat16 sum": (b.add(q, q), brain),
        "bfloat16 from int64": (b.cast(p(0, 2, dtype=dt.int64), dt.bfloat16), {"p0": np.array([2**30 + 2**22 + 1, -3], np.int64)}),
        "fp8 product overflows to NaN": (b.mul(e, e), small),
        "fp8 max of nothing": (
            b.reduce(p(0, 0, dtype=dt.fp8e4m3), Op.MAX, (0,)),
            {"p0": np.zeros(0, ml_dtypes.float8_e4m3fn)},
        ),
    }


def memory() -> dict[str, Case]:
    a, data = buf(6), {"b1": floats(6)}
    n = b.variable("n", 0, 3)
    x, xs = p(0, 3), {"p0": floats(3)}
    doubled = b.assign(a, b.mul(a, 2.0))
    first = b.add(a, 1.0)
    s1 = b.store(b.after(a, first), b.neg(a))
    copied = b.load(a)
    body = b.sink(b.store(b.param(0, (6,), F32), b.mul(b.param(1, (6,), F32), b.param(0, (6,), F32))))
    function = b.function(
        b.tuple_(b.add(b.param(0, (6,), F32), b.param(1, (6,), F32)), b.param(1, (6,), F32)), a, b.flip(a, (True,))
    )
    positions = b.cast(p(1, 2, dtype=I32), dt.index)
    return {
        "assign reversed (R54)": (b.assign(a, b.flip(a, (True,))), data),
        "assign shifted (R54)": (b.assign(b.shrink(a, (1,), (5,)), b.shrink(a, (0,), (5,))), data),
        "two assigns": (b.assign(doubled, b.add(doubled, 1.0)), data),
        "value before an assign (R59)": (b.tuple_(b.add(first, b.after(a, s1)), first), data),
        "copy before an assign": (b.tuple_(copied, b.assign(b.after(a, copied), b.mul(copied, 3.0))), data),
        "reduce before an assign": (
            *[b.assign(b.after(a, m), b.sub(a, b.expand(m, (6,)))) for m in [b.reduce(a, Op.MAX, (0,))]],
            data,
        ),
        "store into views": (
            b.sink(b.store(b.permute(b.reshape(a, (2, 3)), (1, 0)), b.reshape(b.add(p(0, 6), 1.0), (3, 2)))),
            {"b1": floats(6), "p0": floats(6)},
        ),
        "store one element": (b.store(b.at(a, 2), b.const(9.0)), data),
        "store at indices": (b.store(b.at(a, positions), p(0, 2)), {**data, "p0": floats(2), "p1": np.array([4, 1], np.int32)}),
        "store gated": (b.store(a, p(0, 6), b.lt(p(0, 6), 0.0)), {**data, "p0": floats(6)}),
        "store a fresh buffer": (b.store(buf(3), x), xs),
        "store bytes of words": (
            b.store(b.shrink(b.bitcast(buf(2, dtype=dt.uint32), dt.uint8), (1,), (4,)), p(0, 4, dtype=dt.uint8)),
            {"b1": ints(2, dtype=np.uint32), "p0": ints(4, dtype=np.uint8)},
        ),
        "store symbolic bytes of words": (
            b.store(b.bitcast(b.shrink(buf(4, dtype=dt.uint32), (1,), (n,)), dt.uint8), p(0, b.mul(n, 4), dtype=dt.uint8)),
            {"b1": ints(4, dtype=np.uint32), "p0": ints(8, dtype=np.uint8), "n": 2},
        ),
        "store words into bytes": (
            b.store(b.bitcast(b.shrink(buf(12, dtype=dt.uint8), (4,), (8,)), dt.uint32), p(0, 2, dtype=dt.uint32)),
            {"b1": ints(12, dtype=np.uint8), "p0": ints(2, dtype=np.uint32)},
        ),
        "store a slice": (
            b.store(b.slice_(buf(4, dtype=dt.uint64), 1, 3, dt.int16), p(0, 3, dtype=dt.int16)),
            {"b1": ints(4, dtype=np.uint64), "p0": ints(3, dtype=np.int16)},
        ),
        "group": (b.sink(b.group(b.store(buf(3), x), b.store(buf(3, 2), b.neg(x))), x), xs),
        "load gated (R52)": (b.load(x, b.expand(b.reshape(b.const(5.0), (1,)), (3,)), b.lt(x, 0.0)), xs),
        "call": (b.after(a, b.call(body, a, p(0, 6), written=(0,))), {**data, "p0": floats(6)}),
        "function": (b.tuple_(b.get(function, 0), b.get(function, 1)), data),
        "markers": (b.contiguous(b.detach(UOp(Op.CONTIGUOUS_BACKWARD, (x,)))), xs),
        "copy to a device": (b.copy(x, "CPU:1"), xs),
    }


CASES: dict[str, Case] = {**movement(), **bits(), **values(), **memory()}


@pytest.fixture(params=["pyref", "llvm"])
def target(request: pytest.FixtureRequest, pyref: Any) -> Target:
    found: Target = pyref if request.param == "pyref" else LlvmTarget(LlvmTier.FAST)
    return found


def raw(array: Any) -> Any:
    """The bits of an array; every NaN of an arithmetic result is one (R20)."""
    array = np.asarray(array)
    return array if array.dtype.kind in "biu" else array.view(f"u{array.dtype.itemsize}")


def same(wanted: Any, got: Any, keeps_nan: bool) -> bool:
    wanted, got = np.asarray(wanted), np.asarray(got)
    if wanted.shape != got.shape or wanted.dtype != got.dtype:
        return False
    both_nan = (wanted != wanted) & (got != got) & (not keeps_nan)
    return bool(np.all((raw(wanted) == raw(got)) | both_nan))


def check(graph: UOp, inputs: dict[str, Any], target: Target, keeps_nan: bool = False) -> None:
    wanted, got = run(graph, inputs), compile(graph, target, FRESH)(inputs)
    assert len(wanted.values) == len(got.values)
    for w, g in zip(wanted.values, got.values):
        assert same(w, g, keeps_nan), f"interpreter {w!r}\ncompiled {g!r}"
    compare_buffers(wanted, got)


def compare_buffers(wanted: Result, got: Result) -> None:
    assert set(wanted.buffers) == set(got.buffers)
    for key, w in wanted.buffers.items():
        assert same(w, got.buffers[key], False), f"{key}: interpreter {w!r}\ncompiled {got.buffers[key]!r}"


#: A Python float, in which pyref computes, has no payload of a float32 NaN.
KEEPS_NAN = ("bitcast same size", "copy keeps bits of NaN (R28)", "where keeps bits of NaN (R28)")


@pytest.mark.parametrize("name", CASES)
def test_a_program_gives_what_the_interpreter_gives(name: str, target: Target) -> None:
    graph, inputs = CASES[name]
    if name in KEEPS_NAN and target.name == "pyref":
        pytest.skip("pyref computes in Python floats, which do not keep a NaN's payload")
    used = {k: v for k, v in inputs.items() if k in keys(graph)}
    check(graph, used, target, keeps_nan=name in KEEPS_NAN)


def keys(graph: UOp) -> set[str]:
    found = {f"b{u.arg.unique}" for u in toposort(graph) if u.op is Op.BUFFER}
    return found | {u.arg.name or f"p{u.arg.slot}" for u in toposort(graph) if u.op is Op.PARAM}


EXACT = (*dt.INTS, dt.bool_)
ONE_DEVICE = FEATURES - {"shards", "everywhere"}


@pytest.mark.parametrize("block", range(4))
def test_generated_integer_programs_agree(block: int) -> None:
    target = LlvmTarget(LlvmTier.FAST)
    for seed in range(block * 40, block * 40 + 40):
        case = generate_tensor_graph(SeededDraw(seed), nodes=14, max_elements=120, dtypes=EXACT, features=ONE_DEVICE)
        check(case.graph, dict(case.inputs), target)


def test_the_comparison_sees_a_wrong_bit(pyref: Any) -> None:
    graph, inputs = CASES["broadcast"]
    wanted = run(graph, inputs).values[0]
    assert same(wanted, wanted.copy(), False)
    changed = wanted.copy()
    changed.view(np.uint32)[1, 2] ^= 1
    assert not same(wanted, changed, False)
