"""The oracle of calls as users make them: compiled through all caches, and entered natively if the target supports it.

Takes: a graph, inputs, a target, the outputs of a guarded run, and choices. Gives: the first `Fault` of a call: bits that
differ from the guarded run, a changed array of the caller, or memory that two results share. It is also a fault if the native
call and the contract in Python treat an invalid argument differently. Arguments are made invalid by another shape, dtype or
layout, a byte that is no bool, or a variable out of bounds. Spec: R24; R48 (symbolic sizes); `uops.compiler.runtime.program`.
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

from uops.backends.answer import find_result_form_mismatch as form_fault
from uops.backends.cache import ObjectCache
from uops.backends.conformance.judge import outputs_of
from uops.backends.conformance.stage_judge import Fault, Outputs, find_bit_difference_except_nan_payload, find_different_output
from uops.compiler.config import Config
from uops.compiler.runtime.program import Compiled, compile
from uops.compiler.target import Ability, Target
from uops.spec.choices import ChoiceSource
from uops.spec.ir import build as b
from uops.spec.ir.node import UOp
from uops.spec.ir.ops import Op

Array = npt.NDArray[Any]
#: Size of results in bytes from which they lie in blocks of the runtime's own (`uops.backends.native_entry.module`).
_LARGE = 1 << 14
#: Number of invalid arguments per program.
_INVALID_ARGUMENTS = 3
#: Ops that are no single value.
_EFFECTS = frozenset({Op.TUPLE, Op.SINK, Op.GROUP, Op.FUNCTION, Op.STORE, Op.CALL})


def find_first_fault_of_user_calls(
    graph: UOp, inputs: Mapping[str, Any], target: Target, expected: Outputs, draw: ChoiceSource,
    uncached_target: Target | None = None,
) -> Fault | None:  # fmt: skip
    """Return the first fault of some calls, or None. Raises what compiling raises.

    `uncached_target` is the target itself if `target` memoizes machine code.
    """
    checks_large_result = draw.chance(50)
    program = compile(graph, target, Config())
    before = {k: np.array(v) for k, v in inputs.items()}
    result = program(inputs)
    if (form_error := form_fault(graph, inputs, result)) is not None:
        return Fault("form", form_error)
    actual = outputs_of(result)
    fault = find_different_output(expected, actual)
    fault = fault or _check_inputs_unchanged(before, inputs) or _check_results_alias_no_result_or_input(program, inputs)
    if fault is None and Ability.NATIVE_ENTRY in target.abilities:
        in_python = _bypass_native_entry(program)
        faults = (
            _compare_native_with_python_on_changed_argument(program, in_python, inputs, draw) for _ in range(_INVALID_ARGUMENTS)
        )
        fault = next(filter(None, faults), None)
    if fault is not None:
        return fault
    if checks_large_result:
        return _check_large_results_alias_no_result_or_input(graph, inputs, target)
    return _check_caches_distinguish_constants(graph, inputs, uncached_target or target)


def _bypass_native_entry(program: Compiled) -> Compiled:
    """Return a copy of the program that is called by the contract in Python alone."""
    in_python = copy.copy(program)
    in_python._native_entry, in_python.function = None, in_python._check_arguments_and_run
    return in_python


def _check_inputs_unchanged(before: Mapping[str, Array], inputs: Mapping[str, Any]) -> Fault | None:
    """Return a Fault if a call changed an array of its caller."""
    changed = next((k for k, v in inputs.items() if before[k].tobytes() != np.array(v).tobytes()), None)
    return None if changed is None else Fault("changed", f"the call has changed the array of {changed}")


def _check_results_alias_no_result_or_input(program: Compiled, inputs: Mapping[str, Any]) -> Fault | None:
    """Return a Fault if results of two calls share memory, with each other or with an input."""
    program(inputs)  # its results are freed at once, so that their memory may be used again
    results = [outputs_of(program(inputs)) for _ in range(2)]
    arrays = [a for r in results for a in r.values()] + [v for v in inputs.values() if isinstance(v, np.ndarray)]
    result_ids = {id(a) for r in results for a in r.values()}
    pairs = ((x, y) for x, y in itertools.combinations(arrays, 2) if id(x) in result_ids)
    shared = any(x.size and y.size and np.shares_memory(x, y) for x, y in pairs)
    return Fault("shared", "two arrays of results have memory in common") if shared else None


def _check_large_results_alias_no_result_or_input(graph: UOp, inputs: Mapping[str, Any], target: Target) -> Fault | None:
    """Check for shared memory after repeating the value until it is large."""
    repeated = repeat_value(graph, _LARGE)
    return None if repeated is None else _check_results_alias_no_result_or_input(compile(repeated, target, Config()), inputs)


def repeat_value(graph: UOp, bytes_: int) -> UOp | None:
    """Return a value of `bytes_` bytes or more: copies of the program's value. None if it has none, or is on several devices."""
    if (
        graph.op in _EFFECTS
        or isinstance(graph.device, tuple)
        or not all(isinstance(n, int) for n in graph.shape)
        or 0 in graph.shape
    ):
        return None
    size = int(np.prod(graph.shape, dtype=np.int64)) * max(1, graph.dtype.itemsize)
    return b.expand(b.reshape(graph, (1, *graph.shape)), (-(-bytes_ // size), *graph.shape))


def _check_caches_distinguish_constants(graph: UOp, inputs: Mapping[str, Any], target: Target) -> Fault | None:
    """Check that two programs which differ in one constant are told apart by all caches, on disk as well."""
    if graph.op in _EFFECTS:
        return None
    with tempfile.TemporaryDirectory(prefix="uops-objects-") as folder:
        target = copy.copy(target)
        vars(target)["store"] = ObjectCache(Path(folder))
        for value in (1, 2):
            program = compile(b.tuple_(graph, b.const(value)), target, Config(entry="ctypes"))  # a native entry is cached per store
            actual = program(inputs).values[1]
            if actual != value:
                return Fault("cached", f"beside the value, {actual} is given for {value}")
    return None


# Invalid arguments


def _compare_native_with_python_on_changed_argument(
    program: Compiled, in_python: Compiled, inputs: Mapping[str, Any], draw: ChoiceSource
) -> Fault | None:
    """Check that the native call and the call in Python give the same bits for a changed argument, or raise the same error."""
    keys = [k for k in program.keys if k in inputs]
    if not keys:
        return None
    key = draw.choice(keys)
    value = draw.choice(_CHANGES)(inputs[key], draw)
    arguments = [value if k == key else inputs.get(k) for k in program.keys]
    native, python = (_call_or_return_error_name(p.function, arguments) for p in (program, in_python))
    if isinstance(native, str) or isinstance(python, str):
        same = native == python
    else:
        same = len(native) == len(python) and all(_are_arrays_identical(x, y) for x, y in zip(native, python))
    results = [x if isinstance(x, str) else "a result" for x in (native, python)]
    return (
        None if same else Fault("argument", f"{key} as {_describe_argument(value)}: {results[0]} natively, {results[1]} in Python")
    )


def _are_arrays_identical(x: Array, y: Array) -> bool:
    return x.dtype == y.dtype and x.shape == y.shape and find_bit_difference_except_nan_payload(0, x, y) is None


def _call_or_return_error_name(function: Callable[..., Any], arguments: Sequence[Any]) -> list[Array] | str:
    """Return the results of a call, or the name of the error that it raises."""
    try:
        results = function(*arguments)
    except Exception as e:
        return type(e).__name__
    return [np.array(a) for a in results] if isinstance(results, tuple) else [np.array(results)]


def _describe_argument(value: Any) -> str:
    return f"{value.dtype} of {value.shape}, strides {value.strides}" if isinstance(value, np.ndarray) else repr(value)


def _change_shape_value_or_kind(value: Any, draw: ChoiceSource) -> Any:
    """Return an array of another shape, another number, or None."""
    if not isinstance(value, np.ndarray):
        return draw.choice((value + draw.choice((-20, -1, 1, 20, 1 << 40)), float(value), None))
    extended = np.concatenate([value, value]) if value.ndim else value.reshape(1)
    return draw.choice((extended, value.reshape(-1), value[:0] if value.ndim else None, None))


def _change_layout(value: Any, draw: ChoiceSource) -> Any:
    """Return the same elements with another layout in memory."""
    if not isinstance(value, np.ndarray):
        return np.int64(value)
    strided = np.empty((*value.shape, 2), value.dtype)
    strided[..., 0], strided[..., 1] = value, np.flip(value)
    backwards = np.ascontiguousarray(np.flip(value))
    return draw.choice((strided[..., 0], np.flip(backwards), np.asfortranarray(value)))


def _view_as_other_dtype_or_corrupt_bool(value: Any, draw: ChoiceSource) -> Any:
    """Return another dtype of the same size; of bools, bytes that are neither 0 nor 1."""
    if not isinstance(value, np.ndarray):
        return value
    if value.dtype == np.bool_ and value.size:
        invalid = value.copy()
        invalid.reshape(-1).view(np.uint8)[draw.integer(0, value.size - 1)] = draw.choice((2, 128, 255))
        return invalid
    return value.view(f"V{value.dtype.itemsize}" if draw.chance(20) else f"i{value.dtype.itemsize}")


#: Ways to change an argument.
_CHANGES = (_change_shape_value_or_kind, _change_layout, _view_as_other_dtype_or_corrupt_bool)
