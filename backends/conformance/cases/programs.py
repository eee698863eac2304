"""Cases of the source, call, load, store, ordering and marker rows: small programs whose values and final buffers are judged."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from uops.backends.conformance.cases.common import SAMPLE, Inputs, buffer, data, param, single
from uops.backends.conformance.model import Case, Tier
from uops.backends.conformance.pools import classes, ordinary, to_array
from uops.spec.ir import build as b
from uops.spec.ir import dtypes as dt
from uops.spec.ir.dtypes import DType, Kind
from uops.spec.ir.node import UOp
from uops.spec.ir.ops import Op

Make = Callable[[DType, Inputs], UOp]


def _change(x: UOp) -> UOp:
    """Something that no dtype leaves as it was: flip a bool, add one to the rest."""
    return UOp(Op.NOT, (x,)) if x.dtype is dt.bool_ else UOp(Op.ADD, (x, b.const(1, x.dtype)))


def _consts(d: DType, i: Inputs) -> UOp:
    bits = [*ordinary(d), *(v for pool in classes(d).values() for v in pool[:6])]
    values = to_array(bits, d)
    return b.stack(*(b.const(float(v) if d.is_float else bool(v) if d.kind is Kind.BOOL else int(v), d) for v in values))


def _shared(d: DType, i: Inputs) -> UOp:
    x, y = param(d, (5,), i), param(d, (5,), i)
    return b.stack(y, x, y)


def _binary(d: DType, i: Inputs) -> UOp:
    return b.binary(data(dt.uint8, (19,), "binary").tobytes())


def _function(d: DType, i: Inputs) -> UOp:
    body = b.where(b.param(1, (4,), dt.bool_), _change(b.param(0, (4,), d)), b.param(0, (4,), d))
    x, p = param(d, (4,), i), param(dt.bool_, (4,), i)
    f = b.function(b.tuple_(body), x, p)
    return b.get(f, 0)


def _nested(d: DType, i: Inputs) -> UOp:
    """R64: the inner body owns its Params."""
    inner = b.get(b.function(b.tuple_(b.flip(b.param(1, (4,), d), (True,))), b.param(1, (4,), d), b.param(0, (4,), d)), 0)
    outer = b.function(b.tuple_(b.stack(inner, b.param(1, (4,), d))), param(d, (4,), i), param(d, (4,), i))
    return b.get(outer, 0)


def _two_results(d: DType, i: Inputs) -> UOp:
    x = param(d, (5,), i)
    f = b.function(b.tuple_(b.cast(b.param(0, (5,), d), dt.bool_), _change(b.param(0, (5,), d))), x)
    return b.get(f, 1)


def _tuple(d: DType, i: Inputs) -> UOp:
    x = param(d, (5,), i)
    return b.tuple_(b.flip(x, (True,)), b.cast(x, dt.bool_))


def _call(d: DType, i: Inputs) -> UOp:
    """R63: the result of a Call is read through After."""
    body = b.sink(b.store(b.param(1, (6,), d), _change(b.param(0, (6,), d))))
    out = buffer(d, 6, i, filled=False)
    return b.after(out, b.call(body, param(d, (6,), i), out, written=(1,)))


def _load_gated(d: DType, i: Inputs) -> UOp:
    return b.load(param(d, (24,), i), param(d, (24,), i), param(dt.bool_, (24,), i))


def _load_gated_scalar(d: DType, i: Inputs) -> UOp:
    x, y, p = param(d, (6,), i), param(d, (6,), i), param(dt.bool_, (2,), i)
    return b.stack(b.load(x, y, b.at(p, 0)), b.load(x, y, b.at(p, 1)))


def _store_to(view: Callable[[UOp], UOp], size: int) -> Make:
    def make(d: DType, i: Inputs) -> UOp:
        buf = buffer(d, size, i)
        target = view(buf)
        return b.sink(b.store(target, param(d, target.shape, i)))

    return make


def _store_gated(d: DType, i: Inputs) -> UOp:
    buf = buffer(d, 7, i)
    return b.sink(b.store(buf, param(d, (7,), i), param(dt.bool_, (7,), i)))


def _store_reversed(d: DType, i: Inputs) -> UOp:
    """R54: the value is read fully before the first write."""
    buf = buffer(d, 9, i)
    return b.sink(b.store(buf, b.flip(buf, (True,))))


def _store_shifted(d: DType, i: Inputs) -> UOp:
    buf = buffer(d, 9, i)
    return b.sink(b.store(b.shrink(buf, (1,), (8,)), b.shrink(buf, (0,), (8,))))


def _store_bytes(d: DType, i: Inputs) -> UOp:
    buf = buffer(dt.uint8, 4 * d.itemsize, i)
    return b.sink(b.store(b.bitcast(buf, d), param(d, (4,), i)))


def _after_chain(d: DType, i: Inputs) -> UOp:
    """Two writes in order, and a read between them that must see only the first (R59)."""
    buf = buffer(d, 4, i)
    first = b.assign(buf, param(d, (4,), i))
    seen = b.load(first)
    second = b.after(buf, b.store(b.after(buf, seen), param(d, (4,), i)))
    return b.stack(seen, second)


def _after_transitive(d: DType, i: Inputs) -> UOp:
    """R59: ordering passes through a dependency without an effect."""
    buf, other = buffer(d, 4, i), buffer(d, 4, i)
    wrote = b.store(buf, param(d, (4,), i))
    return b.stack(b.after(buf, b.after(other, wrote)), other)


def _group(d: DType, i: Inputs) -> UOp:
    buf = buffer(d, 8, i)
    low, high = b.shrink(buf, (0,), (4,)), b.shrink(buf, (4,), (4,))
    return b.after(buf, b.group(b.store(low, param(d, (4,), i)), b.store(high, param(d, (4,), i))))


def _sink(d: DType, i: Inputs) -> UOp:
    one, two = buffer(d, 5, i), buffer(d, 5, i)
    x = param(d, (5,), i)
    return b.sink(b.store(one, x), b.store(two, b.flip(x, (True,))))


def _marker(op: Op) -> Make:
    return lambda d, i: UOp(op, (b.permute(param(d, (3, 5), i), (1, 0)),))


# fmt: off
TABLE: tuple[tuple[Op, str, Make], ...] = (
    (Op.PARAM, "matrix",       lambda d, i: b.stack(param(d, (2, 3), i), param(d, (2, 3), i))),
    (Op.PARAM, "shared",       _shared),
    (Op.BUFFER, "contents",    lambda d, i: b.stack(buffer(d, 7, i), buffer(d, 7, i))),
    (Op.CONST, "edge-values",  _consts),
    (Op.BINARY, "bytes",       _binary),
    (Op.FUNCTION, "two-params", _function),
    (Op.FUNCTION, "nested",    _nested),
    (Op.GETTUPLE, "second",    _two_results),
    (Op.TUPLE, "two-dtypes",   _tuple),
    (Op.CALL, "one-output",    _call),
    (Op.LOAD, "copy",          lambda d, i: b.load(b.permute(param(d, (3, 4), i), (1, 0)))),
    (Op.LOAD, "gated",         _load_gated),
    (Op.LOAD, "gated-scalar",  _load_gated_scalar),
    (Op.STORE, "whole",        _store_to(lambda v: v, 6)),
    (Op.STORE, "shrunk",       _store_to(lambda v: b.shrink(v, (2,), (3,)), 8)),
    (Op.STORE, "flipped",      _store_to(lambda v: b.flip(v, (True,)), 6)),
    (Op.STORE, "transposed",   _store_to(lambda v: b.permute(b.reshape(v, (3, 4)), (1, 0)), 12)),
    (Op.STORE, "indexed",      _store_to(lambda v: b.at(b.reshape(v, (3, 4)), 1), 12)),
    (Op.STORE, "gated",        _store_gated),
    (Op.STORE, "reversed",     _store_reversed),
    (Op.STORE, "overlapping",  _store_shifted),
    (Op.STORE, "bytes",        _store_bytes),
    (Op.AFTER, "chain",        _after_chain),
    (Op.AFTER, "transitive",   _after_transitive),
    (Op.GROUP, "two-stores",   _group),
    (Op.SINK, "two-outputs",   _sink),
    (Op.CONTIGUOUS, "of-view", _marker(Op.CONTIGUOUS)),
    (Op.CONTIGUOUS_BACKWARD, "of-view", _marker(Op.CONTIGUOUS_BACKWARD)),
    (Op.DETACH, "of-view",     _marker(Op.DETACH)),
)
# fmt: on


def cases(tier: Tier) -> Iterator[Case]:
    """Every program row x dtype."""
    for op, edge, make in TABLE:
        for d in dt.STORABLE if tier is Tier.FULL else SAMPLE:
            if (op is Op.BINARY and d is not dt.uint8) or (edge == "bytes" and op is Op.STORE and d is dt.bool_):
                continue
            inputs: Inputs = {}
            yield single(op, d, edge, make(d, inputs), inputs)
