"""The registry: for every claim a graph that it accepts and graphs that it rejects, and for every op one well-formed node.

`claim(id, accepted, *rejected)` registers; claims that a family shares are made from tables, schema claims in all_examples.py.
"""

import dataclasses
from collections.abc import Iterable
from typing import NamedTuple

from uops.spec.ir import args as A
from uops.spec.ir import build as b
from uops.spec.ir import dtypes as dt
from uops.spec.ir.args import AddrSpace
from uops.spec.ir.axes import AxisType
from uops.spec.ir.dtypes import DType
from uops.spec.ir.node import UOp
from uops.spec.ir.ops import COMPARE, Op
from uops.spec.verify.dialects import Dialect


class Example(NamedTuple):
    """`dialect` is None where only the claims of the rows are judged."""

    accepted: UOp
    rejected: tuple[UOp, ...]
    dialect: Dialect | None = None
    target: object = None


EXAMPLES: dict[str, Example] = {}
#: One well-formed node per op.
GOOD: dict[Op, UOp] = {}

PAIR = ("CPU:0", "CPU:1")
f32, i32, u8, b8, idx = dt.float32, dt.int32, dt.uint8, dt.bool_, dt.index
VOID = UOp(Op.SINK)
GLOBAL, LOCAL, REG = AddrSpace.GLOBAL, AddrSpace.LOCAL, AddrSpace.REG


def claim(id: str, accepted: UOp, *rejected: UOp, dialect: Dialect | None = None, target: object = None) -> None:
    assert id not in EXAMPLES, id
    assert rejected, id
    EXAMPLES[id] = Example(accepted, rejected, dialect, target)


def n(op: Op, *src: UOp, arg: object = None) -> UOp:
    """A raw node."""
    return UOp(op, src, arg)


_slots: dict[object, int] = {}


def v(shape: Iterable[object] = (4,), dtype: DType = f32, device: object = None, axis: int | None = None, k: int = 0) -> UOp:
    """A Param; each different one has a slot of its own."""
    shape = tuple(shape)
    slot = _slots.setdefault((shape, dtype, device, axis, k), len(_slots))
    return b.param(slot, shape, dtype, device, axis)


def vec(*dims: object) -> UOp:
    return b.shape_vector(dims)


def i(value: int) -> UOp:
    return b.index(value)


def c(value: object, dtype: DType = f32) -> UOp:
    return UOp(Op.CONST, (), A.ConstArg(value, dtype))


def buf(size: int = 4, dtype: DType = f32, device: A.Device = "CPU", space: AddrSpace = GLOBAL, unique: int = 1) -> UOp:
    return b.buffer(size, dtype, device, space, unique)


def rng(bound: int = 4, axis_id: int = 0, type: AxisType = AxisType.LOOP) -> UOp:
    return b.range_(bound, axis_id, type)


def sharded(axis: int, shape: Iterable[int] = (4, 4), k: int = 0) -> UOp:
    return v(shape, f32, PAIR, axis, k)


N = b.variable("n", 1, 8)
M = b.variable("m", 0, 8)

# ---------------------------------------------------------------------------------------------------------------- source

GOOD[Op.PARAM] = v()
GOOD[Op.BUFFER] = buf()
GOOD[Op.CONST] = c(1.5)
GOOD[Op.BINARY] = b.binary(b"ab")


def _p(shape: UOp, **fields: object) -> UOp:
    return n(Op.PARAM, shape, arg=A.ParamArg(**({"slot": 500, "dtype": f32} | fields)))


claim("PARAM.C2", _p(vec(2)), _p(vec(2), dtype=dt.void))
claim("PARAM.C3", _p(vec(2, N)), _p(v((2,), idx)), _p(n(Op.STACK, c(2, i32))), _p(vec(rng())))
claim("PARAM.C4", _p(vec(0, M)), _p(vec(2, -1)), _p(vec(b.sub(N, 2))))
claim("PARAM.C5", _p(vec(), slot=None, name="k", dtype=idx, bounds=(0, 1)), _p(vec(2), slot=-1), _p(vec(2), slot=None))
_named = {"name": "k", "dtype": idx, "bounds": (0, 1)}
claim(
    "PARAM.C6",
    _p(vec(), **_named | {"dtype": dt.int8, "bounds": (-128, 127)}),
    _p(vec(2), bounds=(0, 1)),
    _p(vec(2), **_named),
    _p(vec(), **_named | {"dtype": f32}),
    _p(vec(), **_named | {"bounds": None}),
    _p(vec(), **_named | {"bounds": (1, 0)}),
    _p(vec(), **_named | {"dtype": dt.int8, "bounds": (0, 128)}),
)
claim(
    "PARAM.C7",
    _p(vec(3, 4), device=PAIR, axis=1),
    _p(vec(3, 4), device="CPU", axis=1),
    _p(vec(3, 4), device=PAIR, axis=2),
    _p(vec(3, 4), device=PAIR, axis=0),
)
claim(
    "PARAM.C8", b.sink(_p(vec(2)), _p(vec(2), name=None)), b.sink(_p(vec(2)), _p(vec(3))), b.sink(_p(vec(2)), _p(vec(2), dtype=i32))
)
claim("PARAM.C10", b.sink(*(b.variable(x, 0, 8) for x in "pb")), b.variable("p0", 0, 8), b.variable("b12", 0, 8, slot=3))
claim("PARAM.C9", b.sink(N, b.variable("n", 1, 8, slot=3)), b.sink(N, b.variable("n", 0, 8)))
claim("BUFFER.C2", buf(0), buf(-1))
claim("BUFFER.C3", buf(2, b8), buf(2, idx), buf(2, dt.void))
claim("BUFFER.C4", buf(device=PAIR), buf(device=PAIR, space=LOCAL), buf(device=PAIR, space=REG))
claim("BUFFER.C5", b.sink(buf(), buf(unique=2)), b.sink(buf(), buf(5)), b.sink(buf(), buf(device="GPU")))
claim(
    "CONST.C2",
    c(float("nan"), dt.fp8e4m3),
    c(1, b8), c(True, i32), c(1.0, i32), c(1, f32), c(256, u8), c(-1, u8), c(0.1, f32), c(float("inf"), dt.fp8e4m3), c(0, dt.void),
    c(449.0, dt.fp8e4m3), c(1.5, idx), c(2**4096, idx),
)  # fmt: skip

# -------------------------------------------------------------------------------------------------------------- movement

_t = v((3, 4))
GOOD[Op.PERMUTE] = b.permute(_t, (1, 0))
GOOD[Op.FLIP] = b.flip(_t, (True, False))
GOOD[Op.RESHAPE] = b.reshape(_t, (4, 3))
GOOD[Op.EXPAND] = b.expand(v((1, 4)), (3, 4))
GOOD[Op.PAD] = b.pad(_t, (0, 1), (3, 5))
GOOD[Op.SHRINK] = b.shrink(_t, (1, 0), (2, 4))
GOOD[Op.INDEX] = b.at(_t, 1)
GOOD[Op.STACK] = b.stack(_t, _t)
GOOD[Op.REPLICATED] = b.replicated(_t, 0)
GOOD[Op.SLICE] = b.slice_(v((8,)), 2, 4)
GOOD[Op.BITCAST] = b.bitcast(_t, i32)


def _perm(*order: int) -> UOp:
    return n(Op.PERMUTE, _t, arg=A.PermuteArg(order))


def _pad(t: UOp, o: UOp, s: UOp) -> UOp:
    return n(Op.PAD, t, o, s)


def _shr(t: UOp, o: UOp, s: UOp) -> UOp:
    return n(Op.SHRINK, t, o, s)


def _slice(t: UOp, offset: UOp, size: int, dtype: DType = f32) -> UOp:
    return n(Op.SLICE, t, offset, arg=A.SliceArg(size, dtype))


def _cast(t: UOp, dtype: DType) -> UOp:
    return n(Op.BITCAST, t, arg=A.BitcastArg(dtype))


claim("PERMUTE.C2", _perm(0, 1), _perm(0), _perm(0, 0), _perm(0, 2), _perm(0, 1, 2), _perm(-1, 0))
claim("FLIP.C2", GOOD[Op.FLIP], n(Op.FLIP, _t, arg=A.FlipArg((True,))), n(Op.FLIP, _t, arg=A.FlipArg((True, False, True))))
claim("FLIP.C3", n(Op.FLIP, sharded(0), arg=A.FlipArg((False, True))), n(Op.FLIP, sharded(0), arg=A.FlipArg((True, False))))
claim(
    "RESHAPE.C2",
    n(Op.RESHAPE, v((2, N, N)), vec(N, b.mul(N, 2))),
    n(Op.RESHAPE, _t, vec(3, 5)),
    n(Op.RESHAPE, _t, vec()),
    n(Op.RESHAPE, v((N,)), vec(M)),
    n(Op.RESHAPE, v((N,)), vec(8)),
)
claim("RESHAPE.C3", GOOD[Op.RESHAPE], n(Op.RESHAPE, _t, v((2,), idx)), n(Op.RESHAPE, v(()), n(Op.STACK, c(1, i32))))
claim("RESHAPE.C4", n(Op.RESHAPE, v((0, 3)), vec(0)), n(Op.RESHAPE, _t, vec(-3, -4)))
claim(
    "RESHAPE.C5",
    n(Op.RESHAPE, sharded(0), vec(2, 2, 4)),
    n(Op.RESHAPE, sharded(1), vec(16)),
    n(Op.RESHAPE, sharded(0, (6, 2)), vec(3, 4)),
)
claim("EXPAND.C2", n(Op.EXPAND, v((1, N)), vec(0, N)), n(Op.EXPAND, _t, vec(6, 4)), n(Op.EXPAND, v((N,)), vec(M)))
claim("EXPAND.C3", GOOD[Op.EXPAND], n(Op.EXPAND, _t, v((2,), idx)))
claim("EXPAND.C4", GOOD[Op.EXPAND], n(Op.EXPAND, _t, vec(1, 3, 4)), n(Op.EXPAND, _t, vec(3)))
claim("EXPAND.C5", n(Op.EXPAND, v((1,)), vec(0)), n(Op.EXPAND, v((1,)), vec(-1)))
claim(
    "PAD.C2",
    _pad(v((N,)), vec(1), vec(b.add(N, 1))),
    _pad(_t, vec(0, 2), vec(3, 5)),
    _pad(_t, vec(1, 0), vec(3, 4)),
    _pad(v((N,)), vec(1), vec(8)),
    _pad(v((N,)), vec(1), vec(N)),
)
claim("PAD.C3", _pad(_t, vec(0, M), vec(3, 12)), _pad(_t, vec(-1, 0), vec(3, 4)), _pad(_t, vec(0, b.sub(M, 1)), vec(3, 12)))
claim(
    "PAD.C4", GOOD[Op.PAD], _pad(_t, v((2,), idx), vec(3, 4)), _pad(_t, vec(0, 0), v((2,), idx)), _pad(_t, vec(0, rng()), vec(3, 9))
)
claim("PAD.C5", GOOD[Op.PAD], _pad(_t, vec(0), vec(3, 4)), _pad(_t, vec(0, 0), vec(3, 4, 5)))
claim("PAD.C6", _pad(sharded(0), vec(0, 1), vec(4, 6)), _pad(sharded(0), vec(0, 0), vec(6, 4)))
claim("SHRINK.C2", _shr(v((N,)), vec(1), vec(b.sub(N, 1))), _shr(_t, vec(1, 0), vec(3, 4)), _shr(v((N,)), vec(0), vec(2)))
claim("SHRINK.C3", _shr(_t, vec(0, 0), vec(0, 4)), _shr(_t, vec(0, -1), vec(3, 4)))
claim("SHRINK.C4", GOOD[Op.SHRINK], _shr(_t, v((2,), idx), vec(3, 4)), _shr(_t, vec(0, 0), v((2,), idx)))
claim("SHRINK.C5", GOOD[Op.SHRINK], _shr(_t, vec(0), vec(3, 4)), _shr(_t, vec(0, 0), vec(3)))
claim("SHRINK.C6", _shr(sharded(0), vec(0, 1), vec(4, 3)), _shr(sharded(0), vec(0, 0), vec(2, 4)))
claim("SHRINK.C7", _shr(_t, vec(3, 0), vec(0, 4)), _shr(_t, vec(2, 0), vec(-1, 4)))
claim("INDEX.C2", n(Op.INDEX, _t, i(0), i(0)), n(Op.INDEX, _t, i(0), i(0), i(0)))
claim("INDEX.C3", n(Op.INDEX, _t, v((2,), i32)), n(Op.INDEX, _t, v((2, 2), i32)))
claim("INDEX.C4", n(Op.INDEX, _t, v((2,), u8)), n(Op.INDEX, _t, v((2,), f32)), n(Op.INDEX, _t, c(True, b8)))
claim("INDEX.C5", n(Op.INDEX, sharded(1), i(0)), n(Op.INDEX, sharded(0), i(0)))
claim("INDEX.C6", n(Op.INDEX, v((4,), device="CPU"), v((2,), i32)), n(Op.INDEX, v((4,), device="CPU"), v((2,), i32, "GPU")))
claim("INDEX.C7", n(Op.INDEX, sharded(1), v((2,), i32, PAIR)), n(Op.INDEX, sharded(1), v((2,), i32, PAIR, 0)))
claim("STACK.C2", n(Op.STACK, _t, _t), n(Op.STACK, _t, v((3, 4), i32)))
claim("STACK.C3", n(Op.STACK, v((N,)), v((N,), k=1)), n(Op.STACK, _t, v((1, 4))), n(Op.STACK, v((N,)), v((M,))))
claim("STACK.C4", n(Op.STACK, v(), v(device="CPU")), n(Op.STACK, v(device="GPU"), v(device="CPU")))
claim("STACK.C5", n(Op.STACK, sharded(0), v((4, 4), device=PAIR)), n(Op.STACK, sharded(0), sharded(1)))
_rep = [n(Op.REPLICATED, _t, arg=A.ReplicatedArg(a)) for a in ((0, 1), (0, 0), (2,), (-1,))]
claim("REPLICATED.C2", *_rep)
claim("SLICE.C2", GOOD[Op.SLICE], _slice(_t, i(0), 1))
claim("SLICE.C3", GOOD[Op.SLICE], _slice(v((8,)), v((1,), idx), 1))
claim("SLICE.C4", _slice(v((8,)), c(0, i32), 1), _slice(v((8,)), c(0.0), 1))
claim(
    "SLICE.C5",
    _slice(v((8,)), M, 0),
    _slice(v((8,)), i(5), 4),
    _slice(v((8,)), i(-1), 4),
    _slice(v((8,)), i(0), -1),
    _slice(v((8,)), N, 1),
    _slice(v((8,), u8), i(0), 9, dt.int8),
)
claim("SLICE.C6", _slice(v((8,), u8), i(4), 1), _slice(v((8,), u8), i(2), 1), _slice(v((16,), u8), N, 1))
claim("SLICE.C7", _slice(v((8,), b8), i(0), 1, b8), _slice(v((8,), u8), i(0), 1, b8), _slice(v((8,)), i(0), 1, idx))
claim("SLICE.C8", GOOD[Op.SLICE], _slice(v((8,), idx), i(0), 1))
claim("SLICE.C9", _slice(v((8,), device=PAIR), i(0), 4), _slice(sharded(0, (8,)), i(0), 4))
claim("BITCAST.C2", _cast(v((4,), b8), u8), _cast(v((4,), u8), b8), _cast(v((4,), dt.int64), idx), _cast(v(), dt.void))
claim("BITCAST.C3", GOOD[Op.BITCAST], _cast(v((4,), idx), dt.int64))
claim(
    "BITCAST.C4",
    b.sink(_cast(v((8,), u8), f32), _cast(v((N,)), u8), _cast(v((b.mul(N, 4),), u8), f32)),
    _cast(v((), u8), f32),
    _cast(v((3,), u8), dt.int16),
    _cast(v((N,), u8), dt.int16),
    _cast(v((b.mul(N, 2),), u8), f32),
)
claim("BITCAST.C5", _cast(v((4,), dt.int64, PAIR, 0), u8), _cast(v((4,), u8, PAIR, 0), i32))

# ------------------------------------------------------------------------------------------------------ reduce and call

GOOD[Op.REDUCE] = b.reduce(_t, Op.ADD, (1,))


def _red(t: UOp, *ranges: UOp, op: Op = Op.ADD, axes: tuple[int, ...] = ()) -> UOp:
    return n(Op.REDUCE, t, *ranges, arg=A.ReduceArg(op, axes))


claim("REDUCE.C2", _red(_t, op=Op.MAX, axes=(0,)), _red(_t, op=Op.MIN, axes=(0,)), _red(_t, op=Op.SUB, axes=(0,)))
claim("REDUCE.C3", _red(_t, axes=(1, 0)), _red(_t, axes=(2,)), _red(_t, axes=(0, 0)), _red(_t, axes=(-1,)))
claim("REDUCE.C4", _red(_t, rng()), _red(_t, rng(), axes=(0,)))
claim("REDUCE.C5", _red(_t, rng(), rng(4, 1)), _red(_t, i(4)), _red(_t, rng(), rng()))
claim(
    "REDUCE.C6", _red(v((N,), idx), op=Op.MAX, axes=(0,)), _red(v((M,), idx), op=Op.MAX, axes=(0,)), _red(i(0), rng(0), op=Op.MAX)
)

_a = b.param(0, (4,), f32)
_body = b.tuple_(b.neg(_a))
GOOD[Op.FUNCTION] = b.function(_body, v())
_inside = b.sink(b.store(_a, b.neg(b.param(1, (4,), f32))))
GOOD[Op.CALL] = b.call(_inside, buf(), v())
GOOD[Op.TUPLE] = b.tuple_(_t)
GOOD[Op.GETTUPLE] = b.get(GOOD[Op.FUNCTION], 0)
_n0 = b.variable("n", 1, 8, slot=1)
_sized = b.tuple_(b.param(0, (_n0,), f32))
_on_cpu = b.tuple_(b.param(0, (4,), f32, "CPU"))

claim("FUNCTION.C2", n(Op.FUNCTION, _inside, buf(), v()), n(Op.FUNCTION, b.neg(_a), v()))
claim("FUNCTION.C3", GOOD[Op.FUNCTION], b.function(b.tuple_(buf()), v()))
claim(
    "FUNCTION.C4",
    b.function(b.tuple_(_red(b.cast(rng(), f32), rng())), v()),
    b.function(b.tuple_(b.cast(rng(), f32)), v()),
)
claim("FUNCTION.C5", b.function(_body, v(), v()), b.function(_body))
claim(
    "FUNCTION.C6",
    b.function(_sized, v((N,)), N),
    b.function(_body, v((4,), i32)),
    b.function(_body, v((5,))),
    b.function(_sized, v((M,)), N),
    b.function(_sized, v((3,)), i(4)),
)
claim("FUNCTION.C7", b.function(_on_cpu, v()), b.function(_on_cpu, v(device="GPU")), b.function(_body, v((4,), f32, PAIR, 0)))
claim("FUNCTION.C8", b.function(_sized, v((8,)), i(8)), b.function(_sized, v((9,)), i(9)))
_wrote = [n(Op.FUNCTION, _inside, buf(), v(), arg=A.CallArg(written=w)) for w in ((0,), (2,), (-1,), (0, 0))]
claim("FUNCTION.C9", *_wrote)
claim("CALL.C2", GOOD[Op.CALL], b.call(_body, v()), b.call(_a, v()))
claim("CALL.C3", b.call(_inside, buf(), v(), v()), b.call(_inside, buf()))
claim(
    "CALL.C4", b.call(_inside, buf(), v((2, 2), i32)), b.call(_inside, buf(), v((3,))), b.call(_inside, buf(), v((4,), dt.float16))
)
_counted = b.sink(b.store(b.at(_a, 0), b.cast(b.variable("n", 1, 8, slot=1), f32)))
claim("CALL.C5", b.call(_counted, buf(), i(1)), b.call(_counted, buf(), i(0)))
claim("CALL.C6", *(u.replace(op=Op.CALL) for u in _wrote))
_in = {space: b.tuple_(b.neg(n(Op.PARAM, b.shape_vector((4,)), arg=A.ParamArg(0, f32, addrspace=space)))) for space in AddrSpace}
claim("FUNCTION.C10", b.function(_in[GLOBAL], v()), b.function(_in[LOCAL], v()), b.function(_in[REG], buf(), v()))
_stored = {space: b.sink(b.store(t.src[0].src[0], t.src[0])) for space, t in _in.items()}
claim("CALL.C7", b.call(_stored[GLOBAL], buf()), b.call(_stored[REG], buf()), b.call(_stored[GLOBAL], buf(space=LOCAL)))
claim(
    "GETTUPLE.C2", b.get(b.tuple_(_t), 0), n(Op.GETTUPLE, _t, arg=A.GetTupleArg(0)), n(Op.GETTUPLE, _wrote[0], arg=A.GetTupleArg(0))
)
_get = [n(Op.GETTUPLE, b.tuple_(_t, _a), arg=A.GetTupleArg(k)) for k in (1, 2, -1)]
claim("GETTUPLE.C3", *_get)

# ----------------------------------------------------------------------------------------------------- memory and order

_B = buf()
_gate = v((4,), b8)
GOOD[Op.LOAD] = b.load(_B)
GOOD[Op.STORE] = b.store(_B, v())


def _load(*src: UOp, device: object = None) -> UOp:
    return n(Op.LOAD, *src, arg=A.LoadArg(device))


claim("LOAD.C2", _load(_B, v(), _gate), _load(_B, v()))
claim("LOAD.C3", _load(_B, v(), c(True, b8)), _load(_B, v(), v((4,), u8)))
claim("LOAD.C4", _load(_B, v(), c(True, b8)), _load(_B, v(), v((1,), b8)))
claim("LOAD.C5", _load(_B, v(), _gate), _load(_B, v((1,)), _gate), _load(_B, v((4,), i32), _gate))
claim("LOAD.C6", _load(v((4,), b8)), _load(v((4,), idx)))
claim("LOAD.C7", _load(v((4, 3)), device=PAIR), _load(v((3, 4)), device=PAIR), _load(v(()), device=PAIR))
claim("LOAD.C8", _load(_B, v(), _gate, device="GPU"), _load(_B, v(device="GPU"), _gate))
_S = sharded(0)
claim(
    "LOAD.C9",
    _load(_S, v((4, 4), device=PAIR), v((4, 4), b8, PAIR, 0)),
    _load(_S, sharded(1), c(True, b8)),
    _load(v((4, 4), device=PAIR), _S, c(True, b8)),
)
claim(
    "STORE.C2",
    b.store(b.permute(b.reshape(b.after(_B, VOID), (2, 2)), (1, 0)), v((2, 2))),
    b.store(b.expand(buf(1), (4,)), v()),
    b.store(b.pad(_B, (0,), (5,)), v((5,))),
    b.store(b.neg(_B), v()),
    b.store(N, i(1)),
)
claim("STORE.C3", b.store(_B, v()), b.store(_B, v((4,), i32)))
claim("STORE.C4", b.store(_B, v()), b.store(_B, v((1,))), b.store(_B, c(1.0)))
claim("STORE.C5", b.store(_B, v(), _gate), b.store(_B, v(), v((4,), u8)))
claim("STORE.C6", b.store(_B, v(), c(True, b8)), b.store(_B, v(), v((1,), b8)))
claim("STORE.C7", b.store(_B, v(device="CPU")), b.store(_B, v(device="GPU")))
claim("STORE.C8", b.store(_S, v((4, 4), device=PAIR)), b.store(_S, sharded(1)), b.store(v((4, 4), device=PAIR), _S))

GOOD[Op.RANGE] = rng()
GOOD[Op.END] = b.end(b.store(b.at(_B, rng()), c(1.0)), rng())
GOOD[Op.AFTER] = b.after(_B, GOOD[Op.STORE])
GOOD[Op.GROUP] = b.group(GOOD[Op.STORE])
GOOD[Op.SINK] = b.sink(GOOD[Op.STORE], name="k")
GOOD[Op.LINEAR] = n(Op.LINEAR, GOOD[Op.CALL])
claim("RANGE.C2", rng(), n(Op.RANGE, v((1,), idx), arg=A.RangeArg(0, AxisType.LOOP)))
claim("RANGE.C3", n(Op.RANGE, c(3, i32), arg=A.RangeArg(0, AxisType.LOOP)), n(Op.RANGE, c(3.0), arg=A.RangeArg(0, AxisType.LOOP)))
_once = b.store(b.at(_B, rng()), c(1.0))
claim(
    "RANGE.C4",
    b.sink(b.end(_once, rng())),
    b.sink(b.end(_once, rng()), b.end(b.store(b.at(_B, rng()), c(2.0)), rng())),
    b.sink(b.end(b.store(b.at(_B, rng()), _red(c(1.0), rng())), rng())),
)
claim("RANGE.C5", b.sink(rng(4, 0), rng(5, 1)), b.sink(rng(4, 0), rng(5, 0)), b.sink(rng(), rng(4, 0, AxisType.GLOBAL)))
claim("END.C2", GOOD[Op.END], n(Op.END, _once, i(4)), n(Op.END, _once, rng(), rng()))
claim("SINK.C2", b.sink(name="k"), n(Op.SINK, arg=A.SinkArg("")))

# ---------------------------------------------------------------------------------------------------------- elementwise

_FLOAT_UNARY = (Op.RECIP, Op.EXP2, Op.LOG2, Op.SIN, Op.SQRT)
_ANY_BINARY = (Op.ADD, Op.MUL, Op.MAX, Op.CMPLT, Op.CMPNE, Op.CMPGT, Op.CMPGE, Op.CMPLE, Op.CMPEQ, Op.MIN)
#: Binary op -> a legal dtype and illegal ones; its C3 is the dtype's legality (R09, R10).
_LEGAL: dict[Op, tuple[DType, tuple[DType, ...]]] = {
    **dict.fromkeys((Op.MOD, Op.IDIV), (idx, (b8, f32))),
    **dict.fromkeys((Op.XOR, Op.OR, Op.AND), (b8, (f32,))),
    **dict.fromkeys((Op.DIV, Op.POW), (f32, (i32, b8, idx))),
    Op.SUB: (u8, (b8,)),
}

for _op in (Op.TRUNC, Op.CONTIGUOUS, Op.CONTIGUOUS_BACKWARD, Op.DETACH):
    GOOD[_op] = n(_op, v())
for _op in _FLOAT_UNARY:
    GOOD[_op] = n(_op, v())
    claim(f"{_op.name}.C2", n(_op, v((4,), dt.fp8e4m3)), n(_op, v((4,), i32)), n(_op, v((4,), b8)), n(_op, i(1)))
GOOD[Op.NEG] = n(Op.NEG, v((4,), u8))
claim("NEG.C2", GOOD[Op.NEG], n(Op.NEG, _gate))
GOOD[Op.NOT] = n(Op.NOT, _gate)
claim("NOT.C2", GOOD[Op.NOT], n(Op.NOT, v((4,), u8)), n(Op.NOT, v()))
GOOD[Op.CAST] = b.cast(v(), i32)
claim("CAST.C2", n(Op.CAST, v(), arg=A.CastArg(idx)), n(Op.CAST, v(), arg=A.CastArg(dt.void)))


def _together(op: Op, first: int, d: DType, count: int) -> None:
    """The claims on shapes, devices and axes, from number `first` on."""

    def node(*operands: UOp) -> UOp:
        return n(op, *operands, *[operands[-1]] * (count - len(operands)))

    claim(f"{op.name}.C{first}", node(v((3, 1), d), v((0,), d)), node(v((3,), d), v((4,), d)), node(v((N,), d), v((M,), d)))
    claim(f"{op.name}.C{first + 1}", node(v((4,), d), v((4,), d, "CPU")), node(v((4,), d, "GPU"), v((4,), d, "CPU")))
    claim(
        f"{op.name}.C{first + 2}",
        node(v((4, 4), d, PAIR, 1), v((4,), d, PAIR, 0)),
        node(v((4, 4), d, PAIR, 1), v((4, 4), d, PAIR, 0)),
        node(v((4, 4), d, PAIR, 0), v((4,), d, PAIR, 0)),
    )


for _op in (*_ANY_BINARY, *_LEGAL):
    _d, _illegal = _LEGAL.get(_op, (b8, ()))
    GOOD[_op] = n(_op, v((4,), _d), v((4,), _d, k=1))
    _wider = dt.int64 if _d.is_integer else dt.float64 if _d.is_float else u8
    claim(f"{_op.name}.C2", GOOD[_op], n(_op, v((4,), _d), v((4,), _wider)))
    if _illegal:
        claim(f"{_op.name}.C3", GOOD[_op], *(n(_op, v((4,), d), v((4,), d, k=1)) for d in _illegal))
    _together(_op, 4 if _illegal else 3, _d, 2)
for _op in (Op.SHL, Op.SHR):
    GOOD[_op] = n(_op, v((4,), u8), v((4,), i32))
    claim(f"{_op.name}.C2", n(_op, i(1), c(2, u8)), n(_op, _gate, v((4,), i32)), n(_op, v(), v((4,), i32)))
    claim(f"{_op.name}.C3", GOOD[_op], n(_op, v((4,), u8), v()), n(_op, v((4,), u8), _gate))
    _together(_op, 4, i32, 2)
GOOD[Op.WHERE] = n(Op.WHERE, v(), v((4,), i32), v((4,), i32))
claim("WHERE.C2", GOOD[Op.WHERE], n(Op.WHERE, _gate, v(), v((4,), i32)))
_together(Op.WHERE, 3, b8, 3)
GOOD[Op.MULACC] = n(Op.MULACC, v(), v(), v())
claim("MULACC.C2", GOOD[Op.MULACC], n(Op.MULACC, v(), v(), v((4,), i32)), n(Op.MULACC, v((4,), i32), v(), v()))
_together(Op.MULACC, 3, f32, 3)
_u64 = v((4,), dt.uint64)
GOOD[Op.THREEFRY] = n(Op.THREEFRY, _u64, _u64)
claim(
    "THREEFRY.C2",
    GOOD[Op.THREEFRY],
    n(Op.THREEFRY, _u64, v((4,), dt.int64)),
    n(Op.THREEFRY, v((4,), dt.uint32), v((4,), dt.uint32)),
)
_together(Op.THREEFRY, 3, dt.uint64, 2)
assert COMPARE <= set(_ANY_BINARY)

# -------------------------------------------------------------------------------------------------------------- codegen

_wmma = A.WmmaArg("tile", (16, 16, 16), dt.float16, f32, "GPU", 32)
_frag = (v((8,), dt.float16), v((8,), dt.float16, k=1), v((8,)))


def _mma(*src: UOp, **fields: object) -> UOp:
    return n(Op.WMMA, *src, arg=dataclasses.replace(_wmma, **fields))


GOOD[Op.BARRIER] = n(Op.BARRIER, GOOD[Op.STORE])
GOOD[Op.INS] = n(Op.INS, _t, arg=A.InsArg("v_add", f32))
GOOD[Op.SPECIAL] = n(Op.SPECIAL, i(8), arg=A.SpecialArg("gidx0"))
GOOD[Op.IF] = n(Op.IF, c(True, b8))
GOOD[Op.ENDIF] = n(Op.ENDIF, GOOD[Op.IF])
GOOD[Op.WMMA] = _mma(*_frag)
GOOD[Op.CUSTOM] = n(Op.CUSTOM, _t, arg=A.CustomArg("f({0}, {{}});", dt.void))
GOOD[Op.ATOMICADD] = n(Op.ATOMICADD, _B, v())
GOOD[Op.CUSTOM_FUNCTION] = n(Op.CUSTOM_FUNCTION, arg=A.NameArg("decode"))
GOOD[Op.SOURCE] = n(Op.SOURCE, arg=A.SourceArg("void k() {}"))
GOOD[Op.PROGRAM] = n(Op.PROGRAM, n(Op.LINEAR), GOOD[Op.SOURCE], b.binary(b""))

claim("INS.C2", GOOD[Op.INS], n(Op.INS, arg=A.InsArg("", f32)))
claim("SPECIAL.C2", GOOD[Op.SPECIAL], n(Op.SPECIAL, v((1,), idx), arg=A.SpecialArg("g")))
claim("SPECIAL.C3", n(Op.SPECIAL, c(8, i32), arg=A.SpecialArg("g")), n(Op.SPECIAL, c(8.0), arg=A.SpecialArg("g")))
claim("SPECIAL.C4", GOOD[Op.SPECIAL], n(Op.SPECIAL, i(8), arg=A.SpecialArg("")))
claim("IF.C2", GOOD[Op.IF], n(Op.IF, c(1, u8)))
claim("IF.C3", GOOD[Op.IF], n(Op.IF, _gate))
claim("ENDIF.C2", GOOD[Op.ENDIF], n(Op.ENDIF, VOID))
claim("WMMA.C2", GOOD[Op.WMMA], _mma(_frag[0], _frag[2], _frag[2]), _mma(_frag[0], _frag[1], _frag[0]))
claim("WMMA.C3", GOOD[Op.WMMA], _mma(*_frag, dims=(16, 0, 16)), _mma(*_frag, threads=0), _mma(*_frag, tile_grid=(1, -1)))
claim(
    "WMMA.C4",
    _mma(v((24,), dt.float16), v((16,), dt.float16, k=1), v((48,)), tile_grid=(2, 3)),
    _mma(*_frag, tile_grid=(2, 2)),
    _mma(v((16,), dt.float16), v((24,), dt.float16, k=1), v((48,)), tile_grid=(2, 3)),
    _mma(*_frag, threads=64),
    _mma(v((4,), dt.float16), *_frag[1:]),
    _mma(*_frag, threads=7),
)
claim(
    "WMMA.C5",
    _mma(*_frag[:2], v((8,), device="CPU")),
    _mma(_frag[0], v((8,), dt.float16, "GPU"), v((8,), device="CPU")),
)
_mma_loop = n(Op.B_RANGE, i(2), arg=A.RangeArg(9, AxisType.REDUCE))
_mma_lane = n(Op.B_RANGE, i(2), arg=A.RangeArg(9, AxisType.LOCAL))
_mma_inside = n(Op.STACK, *[b.cast(_mma_loop, f32)] * 8)
_closing = _mma(*_frag, _mma_loop, upcast_c=((0, 2), (1, 4)), reduce_axes=((2, 16),))
claim("WMMA.C6", _closing, _mma(*_frag, i(2)), _mma(*_frag, _mma_loop, _mma_loop))
claim("WMMA.C7", _closing, _mma(*_frag, _mma_lane))
claim("WMMA.C8", _closing, _mma(*_frag[:2], _mma_inside, _mma_loop))
claim("WMMA.C9", _closing, _mma(*_frag, upcast_a=((0, 2), (1, 2))), _mma(*_frag, upcast_c=((0, 16),)))
claim("WMMA.C10", _closing, _mma(*_frag, reduce_axes=((0, 8),)))
claim(
    "CUSTOM.C2",
    GOOD[Op.CUSTOM],
    *(n(Op.CUSTOM, _t, arg=A.CustomArg(t, f32)) for t in ("{1}", "{x}", "{", "}", "{0", "{٣}", "{0{{}", "{0}}0}")),
)
claim("ATOMICADD.C2", n(Op.ATOMICADD, b.at(_B, 0), c(1.0)), n(Op.ATOMICADD, b.neg(_B), v()))
claim("ATOMICADD.C3", GOOD[Op.ATOMICADD], n(Op.ATOMICADD, _B, v((4,), i32)))
claim("ATOMICADD.C4", GOOD[Op.ATOMICADD], n(Op.ATOMICADD, _B, c(1.0)))
claim("ATOMICADD.C5", GOOD[Op.ATOMICADD], n(Op.ATOMICADD, _gate, _gate))
claim("ATOMICADD.C6", GOOD[Op.ATOMICADD], n(Op.ATOMICADD, _B, v(device="GPU")))
claim("CUSTOM_FUNCTION.C2", GOOD[Op.CUSTOM_FUNCTION], n(Op.CUSTOM_FUNCTION, arg=A.NameArg("")))
_stages = GOOD[Op.PROGRAM].src
claim("PROGRAM.C2", GOOD[Op.PROGRAM], *(n(Op.PROGRAM, *(_stages[k] for k in o)) for o in ((1, 0, 2), (1, 1, 2), (0, 2, 2))))
