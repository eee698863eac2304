"""A program as users call it: compiled through all caches, and entered natively where the target has that.

Takes: a graph, inputs, a target, what a guarded run gave, and a `Draw`. Gives: the first `Fault` of a call: other bits than the
guarded run's, an array of the caller's that was changed, memory that two results share, or an argument - of another shape, dtype
or layout, a bool that is none, a variable out of bounds - of which the native call and the contract in Python think differently.
Spec: R24, R48; `uops.compiler.runtime.program`.
"""

from __future__ import annotations

import copy
import itertools
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from uops.backends.answer import fault as form_fault
from uops.backends.cache import ObjectCache
from uops.backends.conformance.judge import outputs_of
from uops.backends.testing.values import Draw
from uops.compiler.config import Config
from uops.compiler.runtime.program import Compiled, compile
from uops.compiler.target import Enters, Target
from uops.fuzz.oracles.stages import Fault, Outputs, differs
from uops.spec.ir import build as b
from uops.spec.ir.node import UOp
from uops.spec.ir.ops import Op

Array = npt.NDArray[Any]
#: Results of so many bytes lie in blocks of the runtime's own (`uops.backends.llvm.entry`).
_LARGE = 1 << 14
#: Arguments that are spoilt per program.
_SPOILT = 3
_EFFECTS = frozenset({Op.TUPLE, Op.SINK, Op.GROUP, Op.FUNCTION, Op.STORE, Op.CALL})


def faults(
    graph: UOp, inputs: Mapping[str, Any], target: Target, wanted: Outputs, draw: Draw, own: Target | None = None
) -> Fault | None:  # fmt: skip
    """The first fault of some calls. `own`: the target itself, of one that remembers machine code. Raises what compiling raises."""
    enlarged = draw.chance(50)
    program = compile(graph, target, Config())
    before = {k: np.array(v) for k, v in inputs.items()}
    result = program(inputs)
    if (wrong := form_fault(graph, inputs, result)) is not None:
        return Fault("form", wrong)
    found = outputs_of(result)
    fault = next((f for k in wanted if (f := differs(k, wanted[k], found[k]))), None)
    fault = fault or _changed(before, inputs) or _shared(program, inputs)
    if fault is None and isinstance(target, Enters):
        in_python = _called_in_python(program)
        spoilt = (_spoilt(program, in_python, inputs, draw) for _ in range(_SPOILT))
        fault = next(filter(None, spoilt), None)
    return fault or (_large(graph, inputs, target) if enlarged else _beside(graph, inputs, own or target))


def _called_in_python(program: Compiled) -> Compiled:
    """The program, called by the contract in Python alone."""
    found = copy.copy(program)
    found._entered, found.function = None, found._general
    return found


def _changed(before: Mapping[str, Array], inputs: Mapping[str, Any]) -> Fault | None:
    """Whether a call has changed what it was given."""
    changed = next((k for k, v in inputs.items() if before[k].tobytes() != np.array(v).tobytes()), None)
    return None if changed is None else Fault("changed", f"the call has changed the array of {changed}")


def _shared(program: Compiled, inputs: Mapping[str, Any]) -> Fault | None:
    """Whether results of two calls share memory, with each other or with what was given."""
    program(inputs)  # gives its memory back
    results = [outputs_of(program(inputs)) for _ in range(2)]
    arrays = [a for r in results for a in r.values()] + [v for v in inputs.values() if isinstance(v, np.ndarray)]
    new = {id(a) for r in results for a in r.values()}
    pairs = ((x, y) for x, y in itertools.combinations(arrays, 2) if id(x) in new)
    shared = any(x.size and y.size and np.shares_memory(x, y) for x, y in pairs)
    return Fault("shared", "two arrays of results have memory in common") if shared else None


def _large(graph: UOp, inputs: Mapping[str, Any], target: Target) -> Fault | None:
    """The same with the value repeated until it is large."""
    if graph.op in _EFFECTS or not all(isinstance(n, int) for n in graph.shape) or 0 in graph.shape:
        return None
    size = int(np.prod(graph.shape, dtype=np.int64)) * max(1, graph.dtype.itemsize)
    many = b.expand(b.reshape(graph, (1, *graph.shape)), (-(-_LARGE // size), *graph.shape))
    return _shared(compile(many, target, Config()), inputs)


def _beside(graph: UOp, inputs: Mapping[str, Any], target: Target) -> Fault | None:
    """Programs that differ in one constant of a second value, through all caches, that on disk as well."""
    if graph.op in _EFFECTS:
        return None
    with tempfile.TemporaryDirectory(prefix="uops-objects-") as folder:
        target = copy.copy(target)
        vars(target)["store"] = ObjectCache(Path(folder))
        for value in (1, 2):
            program = compile(b.tuple_(graph, b.const(value)), target, Config(entry="ctypes"))  # a native entry is kept per store
            found = program(inputs).values[1]
            if found != value:
                return Fault("cached", f"beside the value, {found} is given for {value}")
    return None


# Arguments that are not as they should be


def _spoilt(program: Compiled, in_python: Compiled, inputs: Mapping[str, Any], draw: Draw) -> Fault | None:
    """The native call and the one in Python give the same bits, or both refuse."""
    given = [k for k in program.keys if k in inputs]
    if not given:
        return None
    key = draw.choice(given)
    value = draw.choice(_SPOIL)(inputs[key], draw)
    arguments = [value if k == key else inputs.get(k) for k in program.keys]
    native, general = (_end(p.function, arguments) for p in (program, in_python))
    if isinstance(native, str) or isinstance(general, str):
        same = native == general
    else:
        same = len(native) == len(general) and all(_same(x, y) for x, y in zip(native, general))
    said = [x if isinstance(x, str) else "a result" for x in (native, general)]
    return None if same else Fault("argument", f"{key} as {_spelt(value)}: {said[0]} natively, {said[1]} in Python")


def _same(x: Array, y: Array) -> bool:
    return x.dtype == y.dtype and x.shape == y.shape and differs(0, x, y) is None


def _end(f: Callable[..., Any], arguments: Sequence[Any]) -> list[Array] | str:
    """What a call gives, or the name of what it raises."""
    try:
        found = f(*arguments)
    except Exception as e:
        return type(e).__name__
    return [np.array(a) for a in found] if isinstance(found, tuple) else [np.array(found)]


def _spelt(value: Any) -> str:
    return f"{value.dtype} of {value.shape}, strides {value.strides}" if isinstance(value, np.ndarray) else repr(value)


def _another(value: Any, draw: Draw) -> Any:
    """Another shape or number, or nothing at all."""
    if not isinstance(value, np.ndarray):
        return draw.choice((value + draw.choice((-20, -1, 1, 20, 1 << 40)), float(value), None))
    extended = np.concatenate([value, value]) if value.ndim else value.reshape(1)
    return draw.choice((extended, value.reshape(-1), value[:0] if value.ndim else None, None))


def _layout(value: Any, draw: Draw) -> Any:
    """The same elements, lying otherwise in memory."""
    if not isinstance(value, np.ndarray):
        return np.int64(value)
    apart = np.empty((*value.shape, 2), value.dtype)
    apart[..., 0], apart[..., 1] = value, np.flip(value)
    backwards = np.ascontiguousarray(np.flip(value))
    return draw.choice((apart[..., 0], np.flip(backwards), np.asfortranarray(value)))


def _bits(value: Any, draw: Draw) -> Any:
    """Another dtype of that size, or of bools bytes that are none."""
    if not isinstance(value, np.ndarray):
        return value
    if value.dtype == np.bool_ and value.size:
        spoilt = value.copy()
        spoilt.reshape(-1).view(np.uint8)[draw.integer(0, value.size - 1)] = draw.choice((2, 128, 255))
        return spoilt
    return value.view(f"V{value.dtype.itemsize}" if draw.chance(20) else f"i{value.dtype.itemsize}")


_SPOIL = (_another, _layout, _bits)
