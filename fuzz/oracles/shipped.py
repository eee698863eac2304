"""The oracle of the backend that users get: its own settings and tier, its caches, and calls of the forms that users make.

Takes: a backend with its default settings, a program, inputs and choices. Gives: the first `Fault`. The program is called with
inputs of other layouts, with other values between two calls, with one array for several inputs, with its own earlier results, and
from several threads at once, each with values of its own. Each answer is judged by the interpreter, or is compared bit for bit with
one that was, or with that of a call by one thread. Spec: Param (the caller's values at each run); R24 (results).
"""

from __future__ import annotations

import contextlib
import functools
import threading
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from uops.backends.conformance.judge import Expectation, outputs_of
from uops.backends.conformance.stage_judge import (
    Fault,
    Outputs,
    find_different_output,
    find_disallowed_output,
)
from uops.backends.testing.calls import ChangedMemory, InvocationMode, reverse_elements, run_in_mode_and_check_memory
from uops.fuzz.oracles.calls import repeat_value
from uops.spec.choices import ChoiceSource
from uops.spec.errors import UopsError
from uops.spec.ir import build as b
from uops.spec.ir.node import UOp
from uops.spec.result import Result

Inputs = Mapping[str, Any]
Run = Callable[[Inputs], Result]
#: Modes in which any program may be called.
MODES = (
    InvocationMode.PLAIN, InvocationMode.SECOND, InvocationMode.AGAIN, InvocationMode.STRIDED, InvocationMode.REVERSED,
    InvocationMode.TRANSPOSED, InvocationMode.UNALIGNED, InvocationMode.READ_ONLY,
)  # fmt: skip
#: Threads that call a program at once, and calls of each.
THREADS, CALLS = 3, 4
#: Bytes of a temporary for which a call releases the interpreter's lock: others run meanwhile.
_LONG = 1 << 20


def find_first_fault_of_shipped_calls(
    graph: UOp, inputs: Inputs, run_graph: Callable[[UOp, Inputs], Result], expected: Expectation, draw: ChoiceSource, threads: bool
) -> Fault | None:
    """Return the first fault of some calls, or None. `threads` says whether several threads may call at once.

    Raises what `run_graph` raises at its first call.
    """
    run = functools.partial(run_graph, graph)
    mode = draw.choice(MODES)
    try:
        first = outputs_of(run_in_mode_and_check_memory(run, inputs, mode))
    except ChangedMemory as e:
        return Fault("changed", f"called in the mode {mode.value}: {e}")
    fault = find_disallowed_output(expected, first)
    if fault is not None:
        return fault
    check = draw.choice(CHECKS)
    fault = check(graph, inputs, run, first)
    if fault is None and threads and draw.chance(50):
        long = reverse_copies(graph) if draw.chance(25) else None
        fault = _check_calls_from_several_threads(inputs, run if long is None else functools.partial(run_graph, long))
    return fault


def _judge_on(graph: UOp, inputs: Inputs, run: Run) -> Fault | None:
    """Judge a program on other inputs; None where it has no meaning on them."""
    expected = Expectation.of_program(graph, inputs)
    try:
        _ = expected.strict
    except UopsError:  # a Trap: the inputs were drawn for other values
        return None
    return find_disallowed_output(expected, outputs_of(run(inputs)))


def _check_other_values(graph: UOp, inputs: Inputs, run: Run, first: Outputs) -> Fault | None:
    """Check other values, which must not change the first results; and then the first values again."""
    kept = {k: v.copy() for k, v in first.items()}
    others = {k: reverse_elements(v) for k, v in inputs.items()}
    fault = _judge_on(graph, others, run) or find_different_output(kept, first)
    return fault or find_different_output(kept, outputs_of(run(inputs)))


def _check_overlapping_inputs(graph: UOp, inputs: Inputs, run: Run, first: Outputs) -> Fault | None:
    """Check that inputs of one dtype and shape may be views of one memory, each an element behind the one before."""
    arrays = {k: v for k, v in inputs.items() if isinstance(v, np.ndarray) and v.size}
    alike = max(_group_by_dtype_and_shape(arrays).values(), key=len, default=[])
    if len(alike) < 2:
        return None
    source = arrays[alike[0]]
    memory = np.resize(np.concatenate([arrays[k].reshape(-1) for k in alike]), source.size + len(alike))
    views = {k: memory[n : n + source.size].reshape(source.shape) for n, k in enumerate(alike)}
    return _judge_on(graph, {**inputs, **views}, run)


def _group_by_dtype_and_shape(arrays: Inputs) -> dict[Any, list[str]]:
    groups: dict[Any, list[str]] = {}
    for k, v in arrays.items():
        groups.setdefault((v.dtype, v.shape), []).append(k)
    return groups


def _check_one_array_for_several_inputs(graph: UOp, inputs: Inputs, run: Run, first: Outputs) -> Fault | None:
    """Check that one array may be given for all inputs of its dtype and shape."""
    groups = _group_by_dtype_and_shape({k: v for k, v in inputs.items() if isinstance(v, np.ndarray)})
    return _judge_on(graph, {**inputs, **{k: inputs[keys[0]] for keys in groups.values() for k in keys}}, run)


def _check_results_as_inputs(graph: UOp, inputs: Inputs, run: Run, first: Outputs) -> Fault | None:
    """Check that a result may be given for an input of its dtype and shape, as its copy may."""
    fed = dict(inputs)
    for result in first.values():
        key = next((k for k, v in inputs.items() if isinstance(v, np.ndarray) and _are_alike(v, result)), None)
        if key is not None:
            fed[key] = result
    before = {k: np.array(v) for k, v in fed.items()}
    return _judge_on(graph, before, run) or _judge_on(graph, fed, run)


def _are_alike(x: Any, y: Any) -> bool:
    return bool(x.dtype == y.dtype and x.shape == y.shape)


def reverse_copies(graph: UOp) -> UOp | None:
    """Return a program that computes a large temporary, copies of the program's value, and reverses their order.

    Return None for a program that has no value to copy.
    """
    copies = repeat_value(graph, _LONG)
    return None if copies is None else b.flip(b.contiguous(copies), [k == 0 for k in range(len(copies.shape))])


def _check_calls_from_several_threads(inputs: Inputs, run: Run) -> Fault | None:
    """Check that calls of several threads at once give the bits of one call. The second thread gives other values."""
    given = [inputs]
    with contextlib.suppress(UopsError):  # a Trap: the inputs were drawn for other values
        others = {k: reverse_elements(v) for k, v in inputs.items()}
        run(others)
        given.append(others)
    alone = [{k: v.copy() for k, v in outputs_of(run(x)).items()} for x in given]
    faults: list[Fault | None] = []

    def call(n: int) -> None:
        x, expected = given[n % len(given)], alone[n % len(given)]
        try:
            faults.extend(find_different_output(expected, outputs_of(run(x))) for _ in range(CALLS))
        except Exception as e:
            faults.append(Fault("raised", f"{type(e).__name__} in one of several threads: {e}"))

    threads = [threading.Thread(target=call, args=(n,)) for n in range(THREADS)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    return next(filter(None, faults), None)


#: What follows the first call; one of these is drawn.
CHECKS = (_check_other_values, _check_one_array_for_several_inputs, _check_overlapping_inputs, _check_results_as_inputs)
