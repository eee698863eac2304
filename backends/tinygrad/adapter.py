"""tinygrad as a backend under test: each UOp becomes the tinygrad node of the same name, and tinygrad compiles and runs the graph.

What tinygrad cannot express is declared in `capabilities`, before the run, and raises Unsupported. Nothing is evaluated here: the
adapter only names operations (broadcasting is spelt out with tinygrad's own Reshape and Expand). Two devices: `tinygrad` is its
PYTHON device, which needs nothing else; `tinygrad-x86` is CPU:X86, whose helper programs need a `clang` on the path.

Where names differ: Idiv and Mod are FLOORDIV and FLOORMOD; Div is Tensor.div, as FDIV has no meaning on every device; a Reduce is Tensor.sum, prod or max in the source's own dtype.
"""

from __future__ import annotations

import math
import os
import shutil
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import numpy as np

from uops.backends.arrays import STORAGE
from uops.backends.contract import Backend, Capabilities, Inputs, Missing
from uops.spec import dtypes as dt
from uops.spec.dtypes import DType
from uops.spec.errors import SpecError, Trap, Unsupported
from uops.spec.node import UOp, toposort
from uops.spec.ops import MARKERS, Op
from uops.spec.result import Result

Tensor = Any
Env = dict[UOp, Tensor]

#: Elementwise ops by tinygrad's name. CmpGt, CmpGe and CmpLe are written with CmpLt as its users' operators do.
NAMES: dict[Op, str] = {
    Op.RECIP: "RECIPROCAL", Op.TRUNC: "TRUNC", Op.ADD: "ADD", Op.MUL: "MUL", Op.MAX: "MAX", Op.MOD: "FLOORMOD", Op.IDIV: "FLOORDIV",
    Op.CMPLT: "CMPLT", Op.CMPNE: "CMPNE", Op.CMPEQ: "CMPEQ", Op.XOR: "XOR", Op.OR: "OR", Op.AND: "AND", Op.SHR: "SHR", Op.SHL: "SHL",
    Op.WHERE: "WHERE", Op.NEG: "NEG", Op.SUB: "SUB", Op.EXP2: "EXP2", Op.LOG2: "LOG2", Op.SIN: "SIN", Op.SQRT: "SQRT",
    Op.POW: "POW", Op.MULACC: "MULACC", Op.THREEFRY: "THREEFRY",
}  # fmt: skip
_NO = "the adapter has no tinygrad form for it"
UNSUPPORTED = (
    Missing("Call/*", "*", "tinygrad's Functions and Calls are captured from Python; a hand-made one is not accepted"),
    Missing("Movement/Replicated", "*", "tinygrad has no Replicated"),
    Missing("Load/*", "*", "tinygrad's Load takes an address, not a value"),
    Missing("Ordering/*", "*", "tinygrad's Tensor API orders its effects itself"),
    Missing("Store/*", "*", "tinygrad's Tensor API assigns whole tensors and slices, not views"),
)


class Tinygrad(Backend):
    """tinygrad on its PYTHON device."""

    name: ClassVar[str] = "tinygrad"
    device: ClassVar[str] = "PYTHON"

    def __init__(self) -> None:
        os.environ["DEV"] = self.device
        if self.device != "PYTHON" and shutil.which("clang") is None:
            raise SpecError(f"tinygrad's {self.device} device compiles its helper programs with clang, which is not on the path")
        try:
            import tinygrad
            from tinygrad.uop.ops import Ops
            from tinygrad.uop.ops import UOp as Node
        except ImportError as e:
            raise SpecError("tinygrad is not installed: pip install 'uops[peers]'") from e
        self._tg, self._ops, self._node = tinygrad, Ops, Node
        self._dtypes = {d: getattr(tinygrad.dtypes, d.name if d is not dt.bool_ else "bool") for d in dt.STORABLE}

    def version(self) -> str:
        from importlib.metadata import version

        return f"tinygrad {version('tinygrad')} on {self.device}"

    def capabilities(self) -> Capabilities:
        return Capabilities(unsupported=UNSUPPORTED)

    def run(self, graph: UOp, inputs: Inputs) -> Result:
        """The values of a graph of values. Raises Unsupported, Trap, and whatever tinygrad raises."""
        env = self._evaluate(graph, inputs)
        roots = graph.src if graph.op is Op.TUPLE else (graph,)
        return Result(tuple(self._read(env[r], r) for r in roots), {})

    def _evaluate(self, graph: UOp, inputs: Inputs) -> Env:
        env: Env = {}
        variables = _variables(graph, inputs)
        for u in toposort(graph, gate=lambda n: n.dtype is not dt.index):
            if u.op is Op.TUPLE or u.dtype is dt.index:
                continue
            handler = HANDLERS.get(u.op)
            if handler is None and u.op not in NAMES:
                raise Unsupported(f"{u.op.name} ({_NO})", self.name)
            env[u] = handler(self, u, env, inputs, variables) if handler else self._alu(u, env)
        return env

    # ------------------------------------------------------------------------------------------------------ in and out

    def tensor(self, array: Any, d: DType) -> Tensor:
        """A tinygrad tensor with these bits."""
        a = np.ascontiguousarray(array)
        if d in (dt.bfloat16, dt.fp8e4m3, dt.fp8e5m2):
            unsigned = a.view(f"u{a.dtype.itemsize}")
            return self._tg.Tensor(unsigned.copy()).bitcast(self._dtypes[d])
        return self._tg.Tensor(a.copy())

    def _read(self, t: Tensor, u: UOp) -> Any:
        """The bits of a tensor, through a buffer of our own on the device."""
        if not math.prod(t.shape):
            return np.zeros(t.shape, STORAGE[u.dtype])
        out = self._tg.Tensor.empty(*t.shape, dtype=t.dtype)
        out = out.assign(t).realize()
        raw = bytes(out._buffer().as_memoryview())
        return np.frombuffer(raw, STORAGE[u.dtype]).reshape(t.shape).copy()

    # --------------------------------------------------------------------------------------------------------- elements

    def _alu(self, u: UOp, env: Env) -> Tensor:
        operands = [_broadcast(env[s], u.shape) for s in u.src]
        if u.op is Op.WHERE and u.src[0].dtype is not dt.bool_:
            operands[0] = operands[0] != 0
        return self.alu(NAMES[u.op], *operands)

    def alu(self, name: str, *operands: Tensor) -> Tensor:
        nodes = [t.uop for t in operands]
        return self._tg.Tensor(nodes[0].alu(getattr(self._ops, name), *nodes[1:]))

    def cast(self, t: Tensor, d: DType) -> Tensor:
        return t.cast(self._dtypes[d])

    def bitcast(self, t: Tensor, d: DType) -> Tensor:
        return t.bitcast(self._dtypes[d])

    def const(self, value: Any, d: DType) -> Tensor:
        return self._tg.Tensor(self._node.const(value, self._dtypes[d]))


class TinygradX86(Tinygrad):
    """tinygrad on CPU:X86, its own assembler."""

    name = "tinygrad-x86"
    device = "CPU:X86"


def _broadcast(t: Tensor, shape: tuple[int, ...]) -> Tensor:
    if tuple(t.shape) == shape:
        return t
    return t.reshape((1,) * (len(shape) - len(t.shape)) + tuple(t.shape)).expand(shape)


def _variables(graph: UOp, inputs: Inputs) -> dict[UOp, int]:
    found = {}
    for u in toposort(graph):
        if u.op is Op.PARAM and u.arg.name is not None and u.arg.slot is None:
            value, (lo, hi) = int(inputs[u.arg.name]), u.arg.bounds
            if not lo <= value <= hi:
                raise Trap(f"{u.arg.name} = {value} is outside [{lo}, {hi}] (R48)")
            found[u] = value
    return found


def _dims(vector: UOp, variables: Mapping[UOp, int]) -> tuple[int, ...]:
    """A shape operand as ints; a variable is bound."""
    return tuple(_static(s, variables) for s in vector.src)


def _static(u: UOp, variables: Mapping[UOp, int]) -> int:
    if u.op is Op.CONST:
        return int(u.arg.value)
    if u in variables:
        return variables[u]
    raise Unsupported(f"symbolic {u.op.name}", Tinygrad.name)


def _pad(b: Tinygrad, u: UOp, env: Env, inputs: Inputs, variables: Mapping[UOp, int]) -> Tensor:
    t, offset, shape = env[u.src[0]], _dims(u.src[1], variables), _dims(u.src[2], variables)
    return t.pad(tuple((o, n - o - k) for o, n, k in zip(offset, shape, t.shape, strict=True)))


def _shrink(b: Tinygrad, u: UOp, env: Env, inputs: Inputs, variables: Mapping[UOp, int]) -> Tensor:
    offset, shape = _dims(u.src[1], variables), _dims(u.src[2], variables)
    return env[u.src[0]].shrink(tuple((o, o + n) for o, n in zip(offset, shape, strict=True)))


def _index(b: Tinygrad, u: UOp, env: Env, inputs: Inputs, variables: Mapping[UOp, int]) -> Tensor:
    """Outer indexing (R45), one axis at a time, from the last."""
    t = env[u.src[0]]
    for k in range(len(u.src) - 1, 0, -1):
        where = u.src[k]
        before = (slice(None),) * (k - 1)
        if where.op is Op.STACK:
            t = t[(*before, list(_dims(where, variables)))]
        elif where.op is Op.CONST or where in variables:
            t = t[(*before, _static(where, variables))]
        else:
            t = t[(*before, _runtime_index(b, where, env, inputs, variables))]
    return t


def _runtime_index(b: Tinygrad, u: UOp, env: Env, inputs: Inputs, variables: Mapping[UOp, int]) -> Tensor:
    """An index computed from data: its integer source, before the Cast to index."""
    if u.op is Op.CAST and u.arg.dtype is dt.index:
        return next(iter(b._evaluate(u.src[0], inputs).items()))[1] if u.src[0] not in env else env[u.src[0]]
    if u.op is Op.INDEX:
        return _runtime_index(b, u.src[0], env, inputs, variables)[tuple(_static(i, variables) for i in u.src[1:])]
    raise Unsupported(f"index arithmetic {u.op.name} at run time", Tinygrad.name)


def _slice(b: Tinygrad, u: UOp, env: Env, inputs: Inputs, variables: Mapping[UOp, int]) -> Tensor:
    t, start, arg = env[u.src[0]], _static(u.src[1], variables), u.arg
    count = arg.size * arg.dtype.itemsize // u.src[0].dtype.itemsize
    part = t[start : start + count]
    return part if arg.dtype is u.src[0].dtype else b.bitcast(part.contiguous(), arg.dtype)


def _reduce(b: Tinygrad, u: UOp, env: Env, inputs: Inputs, variables: Mapping[UOp, int]) -> Tensor:
    t, axes = env[u.src[0]], u.arg.axes
    if u.arg.op is Op.ADD:
        return t.sum(axis=axes, keepdim=True, dtype=t.dtype)
    if u.arg.op is Op.MUL:
        return t.prod(axis=axes, keepdim=True, dtype=t.dtype)
    return t.max(axis=axes, keepdim=True)


def _const(b: Tinygrad, u: UOp, env: Env, inputs: Inputs, variables: Mapping[UOp, int]) -> Tensor:
    return b.const(u.arg.value, u.arg.dtype)


def _param(b: Tinygrad, u: UOp, env: Env, inputs: Inputs, variables: Mapping[UOp, int]) -> Tensor:
    return b.tensor(inputs[f"p{u.arg.slot}"], u.dtype)


def _buffer(b: Tinygrad, u: UOp, env: Env, inputs: Inputs, variables: Mapping[UOp, int]) -> Tensor:
    return b.tensor(inputs[f"b{u.arg.unique}"], u.dtype)


def _compare(name: str, swapped: bool, negated: bool) -> Handler:
    """`a > b` as b < a, `a >= b` as not (a < b): tinygrad's own operators."""

    def handler(b: Tinygrad, u: UOp, env: Env, inputs: Inputs, variables: Mapping[UOp, int]) -> Tensor:
        x, y = (_broadcast(env[s], u.shape) for s in u.src)
        t = b.alu(name, y, x) if swapped else b.alu(name, x, y)
        return t.logical_not() if negated else t

    return handler


Handler = Callable[[Tinygrad, UOp, Env, Inputs, Mapping[UOp, int]], Tensor]

HANDLERS: dict[Op, Handler] = {
    **dict.fromkeys(MARKERS, lambda b, u, env, i, v: getattr(env[u.src[0]], u.op.name.lower())()),
    Op.CONST: _const,
    Op.PARAM: _param,
    Op.BUFFER: _buffer,
    Op.BINARY: lambda b, u, env, i, v: b.tensor(np.frombuffer(u.arg.data, np.uint8), dt.uint8),
    Op.PERMUTE: lambda b, u, env, i, v: env[u.src[0]].permute(*u.arg.order),
    Op.FLIP: lambda b, u, env, i, v: env[u.src[0]].flip(*(k for k, f in enumerate(u.arg.flags) if f)),
    Op.RESHAPE: lambda b, u, env, i, v: env[u.src[0]].reshape(_dims(u.src[1], v)),
    Op.EXPAND: lambda b, u, env, i, v: env[u.src[0]].expand(_dims(u.src[1], v)),
    Op.PAD: _pad,
    Op.SHRINK: _shrink,
    Op.INDEX: _index,
    Op.STACK: lambda b, u, env, i, v: b._tg.Tensor.stack(*(env[s] for s in u.src)),
    Op.SLICE: _slice,
    Op.BITCAST: lambda b, u, env, i, v: b.bitcast(env[u.src[0]].contiguous(), u.arg.dtype),
    Op.REDUCE: _reduce,
    Op.CAST: lambda b, u, env, i, v: b.cast(env[u.src[0]], u.arg.dtype),
    Op.DIV: lambda b, u, env, i, v: _broadcast(env[u.src[0]], u.shape).div(_broadcast(env[u.src[1]], u.shape)),
    Op.NOT: lambda b, u, env, i, v: env[u.src[0]].logical_not(),
    Op.CMPGT: _compare("CMPLT", swapped=True, negated=False),
    Op.CMPGE: _compare("CMPLT", swapped=False, negated=True),
    Op.CMPLE: _compare("CMPLT", swapped=True, negated=True),
}
