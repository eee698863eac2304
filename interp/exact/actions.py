"""How each op of the TENSOR dialect is evaluated: one small function per op, and the table of them."""

from __future__ import annotations

from collections.abc import Sequence

from uops.interp.exact import layout
from uops.interp.exact.answers import Answer
from uops.interp.exact.elementwise import MEANING, evaluate_op
from uops.interp.exact.evaluate import HANDLERS, Array, Handler, Pack, Ref, Slot, Task, best, integers, whole
from uops.interp.exact.inputs import elements
from uops.interp.exact.numbers.casts import cast
from uops.interp.exact.numbers.formats import FORMATS, bits_of
from uops.interp.exact.reduction import dot, reduce_elements
from uops.interp.exact.values import Cell, answers, array, from_cells, scalar, to_cells
from uops.spec.errors import SpecError, Trap, Unsupported
from uops.spec.ir.args import BitcastArg, BufferArg, ParamArg, SliceArg
from uops.spec.ir.dtypes import DType, Kind, bool_, index, uint8
from uops.spec.ir.ops import MARKERS, Op
from uops.spec.untrusted import quote_name

# Sources


def param(t: Task) -> Array | Ref | Slot:
    """A bound Param is its argument (R64); a free one is named storage, a named one a bounded number (R48)."""
    arg: ParamArg = t.u.arg
    shape = t.dims(0) if t.u.src else ()
    if t.frame.args is not None and arg.slot is not None:
        return _argument(t, arg, shape)
    t.sized(shape)
    name = arg.name if arg.name is not None else f"p{arg.slot}"
    if name not in t.machine.inputs:
        raise SpecError(f"no input for {quote_name(name)}")
    if arg.name is not None or arg.dtype is index:
        count = layout.count(shape)
        given = array(arg.dtype, shape, elements(name, arg.dtype, count, t.machine.inputs[name]))
        _check_bounds(arg, given)
        return given
    return whole(t.machine.storage(name, t.u, layout.count(shape)), shape, 0)


def _argument(t: Task, arg: ParamArg, shape: tuple[int, ...]) -> Slot:
    args = t.frame.args or ()
    if arg.slot is None or arg.slot >= len(args):
        raise SpecError(f"R64: no argument for Param {arg.slot}")
    slot = args[arg.slot]
    v = slot.value
    if not isinstance(v, Array | Ref) or v.dtype is not arg.dtype or v.shape != shape:
        got = f"{v.dtype.name}{v.shape}" if isinstance(v, Array | Ref) else "void"
        raise SpecError(f"R64: Param {arg.slot} is {arg.dtype.name}{shape}, its argument {got}")
    if arg.bounds is not None:
        _check_bounds(arg, t.read(v))
    return slot


def _check_bounds(arg: ParamArg, v: Array) -> None:
    if arg.bounds is not None and any(not arg.bounds[0] <= n <= arg.bounds[1] for n in integers(v)):
        raise Trap(f"R48: {quote_name(str(arg.name))} = {v.numbers} is outside {arg.bounds}")


def buffer(t: Task) -> Ref:
    """All shards of an n-tuple Buffer as one array (R73)."""
    arg: BufferArg = t.u.arg
    n = arg.size * (len(arg.device) if isinstance(arg.device, tuple) else 1)
    return whole(t.machine.storage(f"b{arg.unique}", t.u, n), (n,), 0)


def const(t: Task) -> Array:
    return scalar(t.u.arg.dtype, bits_of(t.u.arg.dtype, t.u.arg.value))


def binary(t: Task) -> Array:
    data: bytes = t.u.arg.data
    t.sized((len(data),))
    return array(uint8, (len(data),), [Answer(uint8, b) for b in data])


# Movement


def _moved(v: Array | Ref, found: layout.Layout, t: Task) -> Array | Ref:
    """The elements at a layout's positions; a reference stays one."""
    shape, positions = found
    t.sized(shape)
    if isinstance(v, Ref):
        return Ref(v.storage, v.dtype, shape, [None if p < 0 else v.places[p] for p in positions], t.mask)
    source = answers(v)
    return array(v.dtype, shape, [source[p] if p >= 0 else Answer(v.dtype, 0) for p in positions])


def permute(t: Task) -> Array | Ref:
    v = t.raw(0)
    return _moved(v, layout.permute(v.shape, t.u.arg.order), t)


def flip(t: Task) -> Array | Ref:
    v = t.raw(0)
    return _moved(v, layout.flip(v.shape, t.u.arg.flags), t)


def reshape(t: Task) -> Array | Ref:
    v, new = t.raw(0), t.dims(1)
    found = layout.reshape(v.shape, new)
    if found is None:
        raise t.reject(f"{v.shape} cannot be reshaped to {new}")
    return _moved(v, found, t)


def expand(t: Task) -> Array | Ref:
    """Gives a value: two elements would share an address (R51)."""
    v, new = t.value(0), t.dims(1)
    t.sized(new)
    found = layout.expand(v.shape, new)
    if found is None:
        raise t.reject(f"{v.shape} cannot be expanded to {new}")
    return _moved(v, found, t)


def pad(t: Task) -> Array | Ref:
    v, offset, new = t.value(0), t.dims(1), t.dims(2)
    t.sized(new)
    found = layout.pad(v.shape, offset, new)
    if found is None:
        raise t.reject(f"R43: {v.shape} at {offset} does not fit in {new}")
    return _moved(v, found, t)


def shrink(t: Task) -> Array | Ref:
    v, offset, new = t.raw(0), t.dims(1), t.dims(2)
    found = layout.shrink(v.shape, offset, new)
    if found is None:
        raise t.reject(f"R44: {new} at {offset} is not inside {v.shape}")
    return _moved(v, found, t)


def index_(t: Task) -> Array | Ref:
    """Of a reference: addresses, bad ones kept as such; of a value: traps at once (R45)."""
    v = t.raw(0)
    picked = [t.value(k) for k in range(1, len(t.u.src))]
    if len(picked) > len(v.shape) or any(len(i.shape) > 1 or not i.dtype.is_integer for i in picked):
        raise SpecError(f"R45: {v.shape} indexed by {[(i.dtype.name, i.shape) for i in picked]}")
    found = layout.index(v.shape, [(i.shape, integers(i)) for i in picked])
    if isinstance(v, Array) and -1 in found[1]:
        raise Trap(f"R45: index {[i.numbers for i in picked]} outside shape {v.shape}")
    return _moved(v, found, t)


def stack(t: Task) -> Array:
    """Joins along a new leading axis; of nothing it is the shape () (R40)."""
    parts = [t.value(k) for k in range(len(t.u.src))]
    if not parts:
        return array(index, (0,), [])
    if any(p.shape != parts[0].shape or p.dtype is not parts[0].dtype for p in parts):
        raise SpecError(f"Stack of {[(p.dtype.name, p.shape) for p in parts]}")
    shape = (len(parts), *parts[0].shape)
    t.sized(shape)
    return array(parts[0].dtype, shape, [a for p in parts for a in answers(p)])


def replicated(t: Task) -> Array:
    """The copies along the axes must have the same bits (R47)."""
    v = t.value(0)
    shape, groups = layout.groups(v.shape, t.u.arg.axes)
    source = answers(v)
    for g in groups:
        if len({source[p].best for p in g}) != 1:
            raise Trap(f"R47: the copies along axes {t.u.arg.axes} are not equal")
    return array(v.dtype, shape, [source[g[0]] for g in groups])


def slice_(t: Task) -> Array | Ref:
    """Elements of another dtype from the bytes of a 1-D source (R46)."""
    arg: SliceArg = t.u.arg
    v, (at,) = t.raw(0), integers(t.value(1))
    start, end = at * v.dtype.itemsize, at * v.dtype.itemsize + arg.size * arg.dtype.itemsize
    size = layout.count(v.shape) * v.dtype.itemsize
    if len(v.shape) != 1 or not 0 <= start <= end <= size or start % _item(arg.dtype):
        raise t.reject(f"R46: bytes {start} to {end} of {size} as {arg.dtype.name}")
    return _recast(v, arg.dtype, (arg.size,), start, end, t)


def bitcast(t: Task) -> Array | Ref:
    """The same bytes as another dtype; a different item size scales the last axis (R46)."""
    arg: BitcastArg = t.u.arg
    v, new = t.raw(0), arg.dtype
    old = v.dtype.itemsize
    if new is bool_ or not old:
        raise SpecError(f"R46: bitcast of {v.dtype.name} to {new.name}")
    shape = v.shape
    if old != _item(new):
        if not shape or shape[-1] * old % new.itemsize:
            raise SpecError(f"R46: bitcast of {v.dtype.name}{shape} to {new.name}")
        shape = (*shape[:-1], shape[-1] * old // new.itemsize)
    return _recast(v, new, shape, 0, layout.count(v.shape) * old, t)


def _item(dtype: DType) -> int:
    if not dtype.itemsize:
        raise SpecError(f"R29: {dtype.name} has no storage")
    return dtype.itemsize


def _recast(v: Array | Ref, new: DType, shape: tuple[int, ...], start: int, end: int, t: Task) -> Array | Ref:
    t.sized(shape)
    w = new.itemsize
    if isinstance(v, Ref):
        old = v.dtype.itemsize
        addresses = [a for p in v.places for a in (p if p is not None else (-1,) * old)][start:end]
        runs = [tuple(addresses[k : k + w]) for k in range(0, len(addresses), w)]
        return Ref(v.storage, new, shape, [None if -1 in r else r for r in runs], t.mask)
    cells: list[Cell] = to_cells(answers(v))[start:end]
    return array(new, shape, [from_cells(new, cells[k : k + w]) for k in range(0, len(cells), w)])


# Reduce


def reduce_(t: Task) -> Array:
    """Collapses axes to size 1 (R32, R42); a float sum directly over Mul may fuse the products."""
    if len(t.u.src) > 1:
        raise Unsupported("Reduce over ranges", "the scalar interpreter")
    v, op = t.value(0), t.u.arg.op
    shape, groups = layout.groups(v.shape, t.u.arg.axes)
    bits = best(answers(v))
    factors = _factors(t, v)
    if op is Op.ADD and factors is not None:
        fmt, (a, b) = FORMATS[v.dtype], factors
        return array(v.dtype, shape, [dot(fmt, [a[p] for p in g], [b[p] for p in g]) for g in groups])
    return array(v.dtype, shape, [reduce_elements(op, v.dtype, [bits[p] for p in g]) for g in groups])


def _factors(t: Task, v: Array) -> tuple[list[int], list[int]] | None:
    """The broadcast operands of a float Mul that a Reduce consumes."""
    source = t.u.src[0]
    if source.op is not Op.MUL or v.dtype.kind is not Kind.FLOAT:
        return None
    a, b = (_spread(t.read(t.operand(x)), v.shape) for x in source.src)
    return best(a), best(b)


# Elementwise and markers


def _spread(v: Array, shape: tuple[int, ...]) -> list[Answer]:
    """Elements of a value broadcast to `shape`."""
    source = answers(v)
    if v.shape == shape:
        return source
    found = layout.expand(v.shape, shape)
    if found is None:
        raise SpecError(f"R41: {v.shape} does not broadcast to {shape}")
    return [source[p] for p in found[1]]


def elementwise(t: Task) -> Array:
    u = t.u
    operands = [t.value(k) for k in range(len(u.src))]
    shape = layout.broadcast([v.shape for v in operands])
    if shape is None:
        raise SpecError(f"R41: {[v.shape for v in operands]} do not broadcast [{u.op.name}]")
    t.sized(shape)
    dtypes = [v.dtype for v in operands]
    _check_dtypes(u.op, dtypes)
    rows = zip(*(_spread(v, shape) for v in operands), strict=True)
    if u.op is Op.WHERE:
        return array(u.dtype, shape, [_select(dtypes, row) for row in rows])
    return array(u.dtype, shape, [evaluate_op(u.op, dtypes, u.dtype, best(row), t.machine.level) for row in rows])


def _check_dtypes(op: Op, dtypes: Sequence[DType]) -> None:
    """R25: equal, but for a shift's count and a Where's condition."""
    same = dtypes[:1] if op in (Op.SHL, Op.SHR) else dtypes[1:] if op is Op.WHERE else dtypes
    if any(d is not same[0] for d in same):
        raise SpecError(f"R25: operands of {op.name} are {[d.name for d in dtypes]}")


def _select(dtypes: Sequence[DType], row: tuple[Answer, ...]) -> Answer:
    """Where, keeping the chosen operand's whole set."""
    chosen = cast(dtypes[0], bool_, row[0].best).best
    return row[1] if chosen else row[2]


def marker(t: Task) -> Array:
    return t.value(0)


# Calls


def tuple_(t: Task) -> Pack:
    return Pack(tuple(t.slot(k) for k in range(len(t.u.src))))


def get_tuple(t: Task) -> Slot:
    packed = t.slot(0).value
    if not isinstance(packed, Pack) or not 0 <= t.u.arg.index < len(packed.slots):
        raise SpecError(f"GetTuple {t.u.arg.index} of {t.u.src[0].op.name}")
    slot: Slot = packed.slots[t.u.arg.index]
    return slot


def function(t: Task) -> Slot:
    """A Function is its substituted body (R64)."""
    done = t.frame.children[t.u].done[t.u.src[0]]
    if not isinstance(done.value, Pack):
        raise SpecError(f"the body of a Function is a Tuple, got {t.u.src[0].op.name}")
    return Slot(done.value, done.mask | t.mask)


def call(t: Task) -> Slot:
    """Runs the body for its effects; its results are seen through After (R63)."""
    done = t.frame.children[t.u].done[t.u.src[0]]
    return Slot(None, done.mask | t.mask)


# Load, Store, order


def load(t: Task) -> Array:
    """Copies of elements, `alt` where the gate is closed; device and address space do not change a value (R52, R53)."""
    v = t.raw(0)
    n = layout.count(v.shape)
    if len(t.u.src) == 1:
        if isinstance(v, Array):
            return v
        out, bit = t.memory.load(v, t.mask)
    else:
        alt, gate = t.value(1), t.gate(2, n)
        if alt.shape != v.shape or alt.dtype is not v.dtype or len(gate) != n:
            raise SpecError(f"R52: Load of {v.dtype.name}{v.shape} with alt {alt.dtype.name}{alt.shape}, gate of {len(gate)}")
        if isinstance(v, Array):
            pairs = zip(answers(v), answers(alt), gate, strict=True)
            return array(v.dtype, v.shape, [x if on else y for x, y, on in pairs])
        out, bit = t.memory.load(v, t.mask, gate, answers(alt))
    t.mask |= bit
    return out


def store(t: Task) -> None:
    """Writes a value, read fully before (R54), into a reference (R51)."""
    target = t.raw(0)
    if not isinstance(target, Ref):
        raise SpecError(f"R51: Store to {t.u.src[0].op.name}, which is no reference")
    value = t.value(1)
    if value.shape != target.shape or value.dtype is not target.dtype:
        raise SpecError(f"Store of {value.dtype.name}{value.shape} to {target.dtype.name}{target.shape}")
    gate = t.gate(2, layout.count(target.shape)) if len(t.u.src) > 2 else None
    t.mask |= t.memory.store(target, answers(value), t.mask, gate)


def after(t: Task) -> Array | Ref | None:
    """Its first source, everything else first (R59)."""
    v = t.slot(0).value
    if isinstance(v, Pack):
        return None  # a Group or Sink: void, like a Store
    if isinstance(v, Ref):
        return Ref(v.storage, v.dtype, v.shape, v.places, t.mask)
    return v


def collect(t: Task) -> Pack:
    """Sink and Group: the sources that are not void."""
    return Pack(tuple(s for s in map(t.slot, range(len(t.u.src))) if isinstance(s.value, Array | Ref)))


_ROWS: dict[Op, Handler] = {
    Op.PARAM: param,
    Op.BUFFER: buffer,
    Op.CONST: const,
    Op.BINARY: binary,
    Op.PERMUTE: permute,
    Op.FLIP: flip,
    Op.RESHAPE: reshape,
    Op.EXPAND: expand,
    Op.PAD: pad,
    Op.SHRINK: shrink,
    Op.INDEX: index_,
    Op.STACK: stack,
    Op.REPLICATED: replicated,
    Op.SLICE: slice_,
    Op.BITCAST: bitcast,
    Op.REDUCE: reduce_,
    Op.FUNCTION: function,
    Op.CALL: call,
    Op.TUPLE: tuple_,
    Op.GETTUPLE: get_tuple,
    Op.LOAD: load,
    Op.STORE: store,
    Op.AFTER: after,
    Op.GROUP: collect,
    Op.SINK: collect,
    **dict.fromkeys(MEANING, elementwise),
    **dict.fromkeys(MARKERS, marker),
}
HANDLERS.update(_ROWS)
