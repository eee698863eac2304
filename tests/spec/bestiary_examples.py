"""Examples of the bestiary's rows."""

from claim_examples import (
    GLOBAL,
    GOOD,
    LOCAL,
    PAIR,
    VOID,
    N,
    _together,
    b8,
    c,
    claim,
    f32,
    i,
    i32,
    idx,
    n,
    sharded,
    u8,
    v,
)

from uops.spec.ir import args as A
from uops.spec.ir import build as b
from uops.spec.ir import dtypes as dt
from uops.spec.ir.axes import AxisType
from uops.spec.ir.dtypes import DType
from uops.spec.ir.node import UOp
from uops.spec.ir.ops import Op

CPU = n(Op.DEVICE, arg=A.DeviceArg("CPU"))
BOTH = n(Op.DEVICE, arg=A.DeviceArg(PAIR))
U1 = n(Op.UNIQUE, arg=A.UniqueArg(1))


def r(bound: UOp | None = None, axis_id: int = 0, *deps: UOp, renumbered: bool = True) -> UOp:
    return n(Op.B_RANGE, i(4) if bound is None else bound, *deps, arg=A.RangeArg(axis_id, AxisType.LOOP, renumbered))


def memory(size: int = 4, dtype: DType = f32, unique: UOp = U1, device: UOp = CPU) -> UOp:
    return n(Op.B_BUFFER, unique, device, arg=A.BBufferArg(size, dtype))


def at(m: UOp, *indices: UOp, gate: UOp | None = None) -> UOp:
    return n(Op.B_INDEX, m, *indices, *(() if gate is None else (gate,)), arg=A.BIndexArg(gate is not None))


def red(op: Op, t: UOp, *src: UOp, by: Op = Op.ADD, axes: tuple[int, ...] = ()) -> UOp:
    return n(op, t, *src, arg=A.ReduceArg(by, axes))


def load(m: UOp, index: UOp, *alt: UOp) -> UOp:
    return n(Op.B_LOAD, m, index, *alt)


def store(index: UOp, val: UOp, *ranges: UOp) -> UOp:
    return n(Op.B_STORE, index, val, *ranges)


def lanes(op: Op, t: UOp, *axes: tuple[int, int]) -> UOp:
    return n(op, t, arg=A.LanesArg(axes))


B = memory()
TRUE = c(True, b8)
_t = v((3, 4))
V4 = n(Op.VECTORIZE, *(c(float(k)) for k in range(4)))
I0 = at(B, r())
GATED = at(B, r(), gate=TRUE)
_unroll = lanes(Op.UNROLL, V4, (0, 2), (1, 2))
_var = n(Op.DEFINE_VAR, arg=A.DefineVarArg("batch", 1, 8))
_sink = b.sink(store(I0, c(1.0), r()))
_linear, _source = n(Op.LINEAR), n(Op.SOURCE, arg=A.SourceArg(""))
_binary = n(Op.PROGRAM_BINARY, arg=A.BinaryArg(b""))
_shards = [v((4,), device=d) for d in PAIR]

GOOD |= {
    Op.B_RANGE: r(i(3), 1, r()),
    Op.REDUCE_AXIS: red(Op.REDUCE_AXIS, _t, axes=(1,)),
    Op.B_REDUCE: red(Op.B_REDUCE, load(B, I0), r()),
    Op.ALLREDUCE: red(Op.ALLREDUCE, sharded(0), CPU),
    Op.B_BUFFER: B,
    Op.BUFFERIZE: n(Op.BUFFERIZE, load(B, I0), r(), arg=A.BufferizeArg("CPU", GLOBAL)),
    Op.B_INDEX: I0,
    Op.POINTER_INDEX: n(Op.POINTER_INDEX, B, i(8)),
    Op.B_LOAD: load(B, GATED, c(0.0)),
    Op.B_STORE: store(I0, c(1.0), r()),
    Op.B_PROGRAM: n(Op.B_PROGRAM, _sink, CPU, _linear, _source, _binary),
    Op.PROGRAM_BINARY: n(Op.PROGRAM_BINARY, arg=A.BinaryArg(b"x")),
    Op.B_BARRIER: n(Op.B_BARRIER, B, _sink),
    Op.VECTORIZE: V4,
    Op.GEP: n(Op.GEP, V4, arg=A.GepArg((0, 2))),
    Op.VCONST: n(Op.VCONST, arg=A.VConstArg((A.ConstArg(1, u8), A.ConstArg(2, u8)), u8)),
    Op.CAT: n(Op.CAT, V4, c(1.0)),
    Op.PTRCAT: n(Op.PTRCAT, I0, GATED),
    Op.UNROLL: _unroll,
    Op.CONTRACT: lanes(Op.CONTRACT, _unroll, (1, 2), (0, 2)),
    Op.B_IF: n(Op.B_IF, TRUE, store(I0, c(1.0), r())),
    Op.B_PARAM: n(Op.B_PARAM, CPU, arg=A.BParamArg(0, 4, f32)),
    Op.DEFINE_LOCAL: n(Op.DEFINE_LOCAL, arg=A.DefineArg(0, 4, f32)),
    Op.DEFINE_VAR: _var,
    Op.DEFINE_REG: n(Op.DEFINE_REG, arg=A.DefineArg(0, 4, f32)),
    Op.BIND: n(Op.BIND, _var, i(3)),
    Op.UNIQUE: U1,
    Op.LUNIQUE: n(Op.LUNIQUE, arg=A.UniqueArg(1)),
    Op.DEVICE: CPU,
    Op.B_PAD: n(Op.B_PAD, _t, arg=A.BPadArg((0, 1), (2, 0))),
    Op.B_SHRINK: n(Op.B_SHRINK, _t, arg=A.BShrinkArg((0, 1), (3, 3))),
    Op.COPY: n(Op.COPY, _t, CPU),
    Op.BUFFER_VIEW: n(Op.BUFFER_VIEW, B, arg=A.BufferViewArg(2, 1)),
    Op.MSTACK: n(Op.MSTACK, *_shards),
    Op.MSELECT: n(Op.MSELECT, sharded(1), arg=A.MSelectArg(1)),
    Op.MULTI: n(Op.MULTI, v((4, 4), device=PAIR), arg=A.MultiArg(1)),
    Op.PRECAST: n(Op.PRECAST, _t),
    Op.CUSTOMI: n(Op.CUSTOMI, c(1.0), arg=A.CustomArg("f({0})", f32)),
}
assert Op.MIN in GOOD

# ------------------------------------------------------------------------------------------------------------------ flow

claim("B_RANGE.C2", r(N), r(v((1,), idx)))
claim("B_RANGE.C3", r(c(3, i32)), r(c(3.0)))
_closed = store(I0, c(1.0), r())
claim("B_RANGE.C4", b.sink(_closed), b.sink(_closed, red(Op.B_REDUCE, c(1.0), r())), b.end(_closed, r()))
claim("B_RANGE.C5", b.sink(r(), r(i(5), renumbered=False)), b.sink(r(), r(i(5))))
claim("B_RANGE.C6", GOOD[Op.B_RANGE], r(i(3), 1, i(4)))
for _op, _src, _axes in ((Op.REDUCE_AXIS, (_t,), (1,)), (Op.B_REDUCE, (c(1.0), r()), ()), (Op.ALLREDUCE, (sharded(0), CPU), ())):
    claim(f"{_op.name}.C2", red(_op, *_src, by=Op.MIN, axes=_axes), red(_op, *_src, by=Op.SUB, axes=_axes))
claim(
    "REDUCE_AXIS.C3", red(Op.REDUCE_AXIS, _t, axes=(0, 1)), red(Op.REDUCE_AXIS, _t, axes=(2,)), red(Op.REDUCE_AXIS, _t, axes=(0, 0))
)
_empty = v((0,), idx)
claim("REDUCE_AXIS.C4", red(Op.REDUCE_AXIS, v((1,), idx), by=Op.MIN, axes=(0,)), red(Op.REDUCE_AXIS, _empty, by=Op.MIN, axes=(0,)))
claim("B_REDUCE.C3", red(Op.B_REDUCE, V4), red(Op.B_REDUCE, c(1.0), i(4)), red(Op.B_REDUCE, c(1.0), r(), r()))
claim("B_REDUCE.C4", red(Op.B_REDUCE, V4, r()), red(Op.B_REDUCE, V4, r(), axes=(0,)))
claim("B_REDUCE.C5", red(Op.B_REDUCE, V4, r()), red(Op.B_REDUCE, _t, r()))
claim("B_REDUCE.C6", red(Op.B_REDUCE, i(1), r(), by=Op.MAX), red(Op.B_REDUCE, i(1), r(i(0)), by=Op.MAX))
claim("ALLREDUCE.C3", red(Op.ALLREDUCE, sharded(0), BOTH), red(Op.ALLREDUCE, sharded(0), U1))
claim("ALLREDUCE.C4", GOOD[Op.ALLREDUCE], red(Op.ALLREDUCE, sharded(0), CPU, axes=(0,)))
claim(
    "ALLREDUCE.C5",
    red(Op.ALLREDUCE, sharded(1), CPU),
    red(Op.ALLREDUCE, v(device=PAIR), CPU),
    red(Op.ALLREDUCE, v(device="CPU"), CPU),
)
claim(
    "B_PROGRAM.C2",
    n(Op.B_PROGRAM, _sink, CPU),
    n(Op.B_PROGRAM, _linear, CPU),
    n(Op.B_PROGRAM, _sink, U1),
    n(Op.B_PROGRAM, _sink, CPU, _source),
)
claim("B_IF.C2", GOOD[Op.B_IF], n(Op.B_IF, c(1, u8), _closed))
claim("B_IF.C3", GOOD[Op.B_IF], n(Op.B_IF, v((4,), b8), _closed))
_ended = b.group(b.end(store(I0, c(1.0)), r()), n(Op.B_IF, TRUE))
claim("B_IF.C4", n(Op.B_IF, TRUE, _ended), n(Op.B_IF, TRUE, c(1.0)), n(Op.B_IF, TRUE, b.group(VOID)))

# ---------------------------------------------------------------------------------------------------------------- memory

claim("B_BUFFER.C2", memory(unique=GOOD[Op.LUNIQUE]), memory(unique=CPU))
claim("B_BUFFER.C3", memory(device=BOTH), memory(device=U1))
claim("B_BUFFER.C4", memory(0), memory(-1))
claim("B_BUFFER.C5", memory(dtype=b8), memory(dtype=idx), memory(dtype=dt.void))
_OTHER_DEVICE = n(Op.DEVICE, arg=A.DeviceArg("GPU"))
_local4, _local5 = (memory(k, unique=n(Op.LUNIQUE, arg=A.UniqueArg(1))) for k in (4, 5))
_apart = b.sink(B, _local5, memory(5, unique=n(Op.UNIQUE, arg=A.UniqueArg(2))), b.call(b.sink(store(at(_local4, i(0)), c(1.0)))))
_clashing = [b.sink(B, x) for x in (memory(5), memory(dtype=i32), memory(device=_OTHER_DEVICE))]
_calls_buffer = b.sink(B, b.call(b.sink(store(at(memory(5), i(0)), c(1.0)))))
claim("B_BUFFER.C6", _apart, *_clashing, _calls_buffer, b.sink(_local4, _local5))


def _bufferize(t: UOp, *ranges: UOp, device: object = "CPU") -> UOp:
    return n(Op.BUFFERIZE, t, *ranges, arg=A.BufferizeArg(device, LOCAL))


claim("BUFFERIZE.C2", _bufferize(c(1.0), r(), r(i(3), 1)), _bufferize(c(1.0), i(4)), _bufferize(c(1.0), r(), r()))
claim("BUFFERIZE.C3", GOOD[Op.BUFFERIZE], _bufferize(V4, r()))
claim("BUFFERIZE.C4", _bufferize(c(1.0), r(i(0))), _bufferize(c(1.0), r(_var)), _bufferize(c(1.0), r(i(-1))))
claim("BUFFERIZE.C5", _bufferize(c(1.0), device=None), _bufferize(r(), r()))
claim("BUFFERIZE.C6", GOOD[Op.BUFFERIZE], _bufferize(c(1.0), r(), device=PAIR))

claim("B_INDEX.C2", GATED, n(Op.B_INDEX, B, arg=A.BIndexArg(True)))
claim("B_INDEX.C3", at(B, gate=v((4,), b8)), at(B, r(), gate=c(1, u8)), at(B, r(), gate=v((4,), b8)))
claim("B_INDEX.C4", at(b.reshape(B, (2, 2)), i(0), i(1)), at(B, i(0), i(0)), at(B, i(0), i(0), gate=TRUE))
claim("B_INDEX.C5", at(B, v((2,), i32)), at(B, v((2, 2), i32)), at(B, c(1.0)))
claim("B_INDEX.C6", at(GOOD[Op.B_PARAM], i(0)), at(V4, i(0)), at(b.neg(B), i(0)))
_elsewhere = at(memory(unique=n(Op.UNIQUE, arg=A.UniqueArg(2))), i(0))
claim(
    "B_INDEX.C7",
    load(B, GATED),
    n(Op.NEG, GATED),
    store(_elsewhere, GATED),
    load(B, at(B, i(0), gate=TRUE), GATED),
    load(B, GATED, GATED),
)


def _pointer(m: UOp, offset: UOp) -> UOp:
    return n(Op.POINTER_INDEX, m, offset)


claim("POINTER_INDEX.C2", _pointer(B, v((2,), i32)), _pointer(b.reshape(B, (2, 2)), i(0)))
claim("POINTER_INDEX.C3", _pointer(GOOD[Op.BUFFER_VIEW], i(0)), _pointer(V4, i(0)))
claim("POINTER_INDEX.C4", _pointer(B, c(4, i32)), _pointer(B, c(4.0)), _pointer(B, v((1, 1), idx)), _pointer(B, i(2)))
_other = memory(unique=n(Op.UNIQUE, arg=A.UniqueArg(2)))
claim("B_LOAD.C2", load(B, _pointer(B, i(0))), load(B, i(0)))
_both_memories = n(Op.PTRCAT, n(Op.PTRCAT, I0), at(_other, i(0)))
claim("B_LOAD.C3", load(n(Op.BUFFER_VIEW, B, arg=A.BufferViewArg(1, 0)), I0), load(_other, I0), load(B, _both_memories))
claim("B_LOAD.C4", load(B, GATED, c(1.0)), load(B, GATED, c(1, i32)), load(B, GATED, v((1,))))
claim("B_LOAD.C5", load(B, n(Op.PTRCAT, GATED), v((1,))), load(B, I0, c(1.0)), load(B, n(Op.PTRCAT, I0), v((1,))))
claim("B_STORE.C2", store(GATED, c(1.0)), store(B, v()))
claim("B_STORE.C3", store(I0, c(1.0)), store(I0, c(1, i32)))
claim("B_STORE.C4", store(n(Op.PTRCAT, I0), v((1,))), store(I0, v((1,))))
claim("B_STORE.C5", store(I0, c(1.0), r(), r(i(3), 1)), store(I0, c(1.0), i(4)), store(I0, c(1.0), r(), r()))


def _padded(t: UOp, begin: tuple[int, ...], end: tuple[int, ...]) -> UOp:
    return n(Op.B_PAD, t, arg=A.BPadArg(begin, end))


def _shrunk(t: UOp, begins: tuple[int, ...], ends: tuple[int, ...]) -> UOp:
    return n(Op.B_SHRINK, t, arg=A.BShrinkArg(begins, ends))


claim("B_PAD.C2", _padded(_t, (0, 0), (0, 0)), _padded(_t, (0,), (0, 0)), _padded(_t, (0, 0), (0, 0, 0)))
claim("B_PAD.C3", _padded(_t, (0, 3), (0, 0)), _padded(_t, (-1, 0), (2, 0)), _padded(_t, (2, 0), (-1, 0)))
claim("B_PAD.C4", _padded(sharded(0), (0, 1), (0, 0)), _padded(sharded(0), (2, 0), (0, 0)))
claim("B_SHRINK.C2", _shrunk(_t, (0, 0), (3, 4)), _shrunk(_t, (0,), (3, 4)), _shrunk(_t, (0, 0), (3,)))
claim(
    "B_SHRINK.C3",
    _shrunk(_t, (2, 4), (2, 4)),
    _shrunk(_t, (0, 0), (4, 4)),
    _shrunk(_t, (2, 0), (1, 4)),
    _shrunk(_t, (-1, 0), (3, 4)),
)
claim("B_SHRINK.C4", _shrunk(sharded(0), (0, 1), (4, 4)), _shrunk(sharded(0), (2, 0), (4, 4)))
claim("COPY.C2", n(Op.COPY, _t, CPU), n(Op.COPY, _t, U1))
claim("COPY.C3", n(Op.COPY, v(), BOTH), n(Op.COPY, _t, BOTH), n(Op.COPY, c(1.0), BOTH))
claim("COPY.C4", GOOD[Op.COPY], n(Op.COPY, i(1), CPU))


def _view(m: UOp, size: int, offset: int) -> UOp:
    return n(Op.BUFFER_VIEW, m, arg=A.BufferViewArg(size, offset))


claim("BUFFER_VIEW.C2", GOOD[Op.BUFFER_VIEW], _view(b.reshape(B, (2, 2)), 1, 0))
claim("BUFFER_VIEW.C3", _view(B, 0, 4), _view(B, 2, 3), _view(B, -1, 2), _view(B, 1, -1))
claim("BUFFER_VIEW.C4", GOOD[Op.BUFFER_VIEW], _view(memory(device=BOTH), 2, 0))
claim("BUFFER_VIEW.C5", GOOD[Op.BUFFER_VIEW], _view(v((4,), idx), 2, 0))


def _param(device: UOp | None = None, **fields: object) -> UOp:
    return n(Op.B_PARAM, *(() if device is None else (device,)), arg=A.BParamArg(**({"slot": 0, "size": 4, "dtype": f32} | fields)))


claim("B_PARAM.C2", _param(), _param(slot=-1))
claim("B_PARAM.C3", _param(size=0), _param(size=-1))
claim("B_PARAM.C4", _param(dtype=u8), _param(dtype=idx), _param(dtype=dt.void))
claim("B_PARAM.C5", _param(CPU), _param(U1))
claim("B_PARAM.C6", _param(CPU), _param(BOTH))
_inner = b.call(b.sink(store(at(_param(size=5), i(0)), c(1.0))), memory(5))
claim(
    "B_PARAM.C7",
    b.sink(_param(), _param(slot=1, size=5), _inner),
    b.sink(_param(), _param(size=5)),
    b.sink(_param(), _param(dtype=u8)),
    b.sink(_param(CPU), _param(_OTHER_DEVICE)),
    b.sink(_param(CPU), _param()),
)

# ---------------------------------------------------------------------------------------------------------------- vector

_int_vector = v((4,), i32)
claim("VECTORIZE.C2", V4, n(Op.VECTORIZE, c(1.0), c(1, i32)))
claim("VECTORIZE.C3", V4, n(Op.VECTORIZE, c(1.0), V4))
claim("VECTORIZE.C4", n(Op.VECTORIZE, v((), device="CPU"), c(1.0)), n(Op.VECTORIZE, v((), device="CPU"), v((), device="GPU")))
claim("GEP.C2", GOOD[Op.GEP], n(Op.GEP, c(1.0), arg=A.GepArg((0,))), n(Op.GEP, _t, arg=A.GepArg((0,))))
claim("GEP.C3", n(Op.GEP, V4, arg=A.GepArg((3, 3))), *(n(Op.GEP, V4, arg=A.GepArg(k)) for k in ((), (4,), (0, -1))))
claim("VCONST.C2", GOOD[Op.VCONST], n(Op.VCONST, arg=A.VConstArg((), u8)))
claim(
    "VCONST.C3",
    GOOD[Op.VCONST],
    n(Op.VCONST, arg=A.VConstArg((A.ConstArg(1, u8), A.ConstArg(1, i32)), u8)),
    n(Op.VCONST, arg=A.VConstArg((A.ConstArg(256, u8),), u8)),
)
claim("CAT.C2", GOOD[Op.CAT], n(Op.CAT, V4, _int_vector))
claim("CAT.C3", n(Op.CAT, V4, V4), n(Op.CAT, V4, _t), n(Op.CAT, v((_var,)), V4))
claim("CAT.C4", n(Op.CAT, V4, v(device="CPU")), n(Op.CAT, v(device="GPU"), v(device="CPU")))
claim("PTRCAT.C2", n(Op.PTRCAT, n(Op.PTRCAT, I0)), n(Op.PTRCAT, c(1.0)), n(Op.PTRCAT, I0, B))
claim("PTRCAT.C3", n(Op.PTRCAT, I0, I0), n(Op.PTRCAT, I0, at(memory(dtype=i32, unique=GOOD[Op.LUNIQUE]), i(0))))
claim("PTRCAT.C4", n(Op.PTRCAT, I0, at(B)), n(Op.PTRCAT, I0, at(b.reshape(B, (2, 2)))))
claim("PTRCAT.C5", store(n(Op.PTRCAT, I0), v((1,))), n(Op.NEG, n(Op.PTRCAT, I0)), store(n(Op.PTRCAT, _elsewhere), n(Op.PTRCAT, I0)))
for _op in (Op.UNROLL, Op.CONTRACT):
    _wrong = (((0, 2), (0, 2)), ((0, 0),), ((0, -1),), ((0, 1 << 17),))
    claim(f"{_op.name}.C2", lanes(_op, c(1.0), (0, 2), (1, 1)), *(lanes(_op, c(1.0), *a) for a in _wrong))
    claim(f"{_op.name}.C3", lanes(_op, V4, (0, 4)), lanes(_op, V4, (0, 2)), lanes(_op, _t, (0, 12)))
claim("CONTRACT.C4", lanes(Op.CONTRACT, n(Op.NEG, _unroll), (1, 2), (0, 2)), lanes(Op.CONTRACT, n(Op.NEG, _unroll), (0, 4)))
claim("CUSTOMI.C2", GOOD[Op.CUSTOMI], n(Op.CUSTOMI, arg=A.CustomArg("{0}", f32)))
assert _together

# ---------------------------------------------------------------------------------------------------------------- define

for _op in (Op.DEFINE_LOCAL, Op.DEFINE_REG):
    claim(f"{_op.name}.C2", n(_op, arg=A.DefineArg(0, 0, f32)), n(_op, arg=A.DefineArg(0, -1, f32)))
    claim(f"{_op.name}.C3", GOOD[_op], n(_op, arg=A.DefineArg(0, 4, idx)), n(_op, arg=A.DefineArg(0, 4, dt.void)))
    _both = [b.sink(GOOD[_op], n(_op, arg=A.DefineArg(k, 5, f32))) for k in (1, 0)]
    claim(f"{_op.name}.C4", *_both)
claim("DEFINE_VAR.C2", n(Op.DEFINE_VAR, arg=A.DefineVarArg("k", 2, 2)), n(Op.DEFINE_VAR, arg=A.DefineVarArg("k", 2, 1)))
claim("DEFINE_VAR.C3", _var, n(Op.DEFINE_VAR, arg=A.DefineVarArg("", 0, 1)))
_again = n(Op.DEFINE_VAR, arg=A.DefineVarArg("batch", 0, 8))
claim("DEFINE_VAR.C5", n(Op.DEFINE_VAR, arg=A.DefineVarArg("p", 0, 8)), n(Op.DEFINE_VAR, arg=A.DefineVarArg("b7", 0, 8)))
claim("DEFINE_VAR.C4", b.sink(_var, n(Op.DEFINE_VAR, arg=A.DefineVarArg("k", 0, 8))), b.sink(_var, _again))


def _bind(variable: UOp, value: UOp) -> UOp:
    return n(Op.BIND, variable, value)


claim("BIND.C2", GOOD[Op.BIND], _bind(i(3), i(3)))
_size = n(Op.DEFINE_VAR, arg=A.DefineVarArg("size", 1, 8))
_cycle = b.add(_bind(_var, _size), _bind(_size, _var))
claim("BIND.C3", _bind(_var, N), _bind(_var, c(3, i32)), _bind(_var, v((1,), idx)), _bind(_var, n(Op.ADD, _var, i(0))), _cycle)
claim("BIND.C4", _bind(_var, i(8)), _bind(_var, i(9)), _bind(_var, i(0)), _bind(_var, n(Op.ADD, N, i(1))))
claim("BIND.C5", b.sink(_bind(_var, i(3)), _var), b.sink(_bind(_var, i(3)), _bind(_var, i(4))))
for _op in (Op.UNIQUE, Op.LUNIQUE):
    claim(f"{_op.name}.C2", n(_op, arg=A.UniqueArg(0)), n(_op, arg=A.UniqueArg(-1)))
claim("MSTACK.C2", GOOD[Op.MSTACK], n(Op.MSTACK, _shards[0], v((4,), i32, PAIR[1])))
claim("MSTACK.C3", GOOD[Op.MSTACK], n(Op.MSTACK, _shards[0], v((5,), f32, PAIR[1])))
claim("MSTACK.C4", GOOD[Op.MSTACK], n(Op.MSTACK, *(v((), device=d) for d in PAIR)))
claim("MSTACK.C5", n(Op.MSTACK, _shards[0]), n(Op.MSTACK, _shards[0], _shards[0]), n(Op.MSTACK, v()), n(Op.MSTACK, v(device=PAIR)))
claim("MSELECT.C2", GOOD[Op.MSELECT], n(Op.MSELECT, v(device="CPU"), arg=A.MSelectArg(0)), n(Op.MSELECT, v(), arg=A.MSelectArg(0)))
_select = [n(Op.MSELECT, sharded(0), arg=A.MSelectArg(k)) for k in (0, 2, -1)]
claim("MSELECT.C3", *_select)


def _multi(t: UOp, axis: int) -> UOp:
    return n(Op.MULTI, t, arg=A.MultiArg(axis))


claim("MULTI.C2", GOOD[Op.MULTI], _multi(v(device="CPU"), 0))
claim("MULTI.C3", _multi(v((3, 4), device=PAIR), 1), _multi(v((3, 4), device=PAIR), 0), _multi(v((4,), device=PAIR), 1))
claim("MULTI.C4", _multi(sharded(1), 1), _multi(sharded(1), 0))
