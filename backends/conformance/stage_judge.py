"""The judge of all stages of a lowering, by the allowed sets of the TENSOR graph and by what each pass must preserve.

Takes: a TENSOR graph or a launch, its inputs, and the graph after any pass. Gives: the outputs of a stage as the interpreter runs
it, and their first `Fault`. `outputs` of callify says which Buffer holds which value. Spec: Lowering Pipeline; R28 (movement
keeps bits), R30 to R32 (allowed sets), R55 (races), R61 (fresh memory).

The TENSOR graph alone has allowed sets (strict level), and these judge all stages. A launch of kernels written by hand has one
right answer, which is the memory that the interpreter leaves (R166); so its values must be exact, or moved. It is compared by bits.

A pass that does not change how values are computed must preserve more, by `KEEPS`: every bit, or every bit unless an op with
several right answers occurs. All NaNs are equal, except in programs that only move values (R28). Elements that may be anything
are not compared. Memory of outputs of a TENSOR graph is initialized with other values than the expected ones, so an element that
a stage does not write is wrong.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import Enum
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from uops.backends.conformance.judge import Expectation, bits_of, format_value_with_bits
from uops.backends.conformance.model import ConformanceCase, ConformanceLevel
from uops.backends.contract import KERNEL_SURFACE, TENSOR_SURFACE
from uops.backends.testing.sparse import is_sparse
from uops.compiler.config import Config
from uops.compiler.entry import EnteringProgram, describe_launch, is_launch
from uops.compiler.passes.callify.callify import outputs
from uops.compiler.pipeline import LoweringState
from uops.compiler.target import Target
from uops.interp import run
from uops.spec.errors import Unsound, UopsError
from uops.spec.ir import dtypes as dt
from uops.spec.ir.node import UOp, toposort
from uops.spec.ir.ops import Op
from uops.spec.rows.accuracy import SEVERAL_RESULTS
from uops.spec.verify.dialects import SELECTED_OPS

Array = npt.NDArray[Any]
#: Modules whose classes of errors give a finding its kind.
_NAMED = (UopsError.__module__, Exception.__module__)
#: Number of a value, or key of a Buffer.
Key = int | str
#: The outputs of a run that were written.
Outputs = dict[Key, Array]


class Preservation(Enum):
    """A guarantee of a pass about the values before it."""

    BITS = "every bit"
    ORDERED = "every bit, unless floats are reduced: the order is free (R32), and which of two zeros is the greatest (R11)"
    CODE = "every bit, unless floats go through Max (R11), through an Exp2 of the target's own (R17) or a tensor core (R119)"
    SET = "the allowed set"


# fmt: off
#: Pass -> its guarantee, and the reason. A pass that is not listed preserves the allowed set.
KEEPS: dict[str, tuple[Preservation, str]] = {
    "callify":   (Preservation.BITS, "it names memory and orders effects; the same ops compute every value"),
    "rangeify":  (Preservation.ORDERED, "the same ops compute each element, but a Reduce becomes loops, or a closed form"),
    "join":      (Preservation.ORDERED, "kernels become parts of one, in blocks of the same loops, on other memory between them"),
    "optimize":  (Preservation.ORDERED, "loops are split, swapped and made parallel, and with them the addends of a sum"),
    "expand":    (Preservation.ORDERED, "loops become lanes, and with them the addends of a sum"),
    "select":    (Preservation.SET,  "ops become approximations within their sets, and small floats accumulate in float32"),
    "linearize": (Preservation.BITS, "the order of instructions is none of the order of operations"),
    "plan":      (Preservation.BITS, "memory has another place and the same contents"),
    "wmma":      (Preservation.ORDERED, "the products of a Wmma are summed by loops, in one order"),
    "workgroups": (Preservation.BITS, "every lane executes the same instructions, in sections one lane after the other"),
    "private memory": (Preservation.BITS, "memory of a kernel has another place and the same contents"),
    "render":    (Preservation.BITS, "the instructions are those of before"),
    "backend":   (Preservation.CODE, "what selection leaves is rounded once per op, so that there is one answer"),
}
# fmt: on


class Fault(NamedTuple):
    """The reason why a result is wrong. `kind` is `value`, or the way in which a run ended. `output`, `element`, `got` and
    `allowed` belong to a wrong value.
    """

    kind: str
    message: str
    output: Key | None = None
    element: int | None = None
    got: str | None = None
    allowed: str | None = None


def fault_of_failed_run(e: BaseException) -> Fault:
    """Return the Fault of a run that raised. Its kind is the class of the error; a failed assertion is a crash like any other."""
    kind = next(c for c in type(e).__mro__ if c.__module__ in _NAMED)
    return Fault(kind.__name__.lower(), str(e) or kind.__name__)


class Judge:
    """The judge of one program on one set of inputs. Raises what the program's own run raises, as a Trap."""

    def __init__(
        self, graph: UOp, inputs: Mapping[str, Any], extra_orders: int = 0, expected: Expectation | None = None
    ) -> None:  # fmt: skip
        self.graph = graph
        self.schedules = extra_orders
        launch = is_launch(graph)
        self.results = () if launch else outputs(graph)
        fresh = {_buffer_key(o.buffer) for o in self.results}  # dead code may have an input of the same key
        self.inputs = {k: v for k, v in inputs.items() if k not in fresh}
        self._expected = expected or Expectation(
            ConformanceCase("", dt.void, "", graph, dict(inputs), (), KERNEL_SURFACE if launch else TENSOR_SURFACE)
        )
        self.allowed_sets = self._expected.strict
        self.initial_memory = self.inputs | {
            _buffer_key(o.buffer): _make_contents_unlike_expected(o.buffer, self.reference_value(k))
            for k, o in enumerate(self.results)
        }

    def reference_value(self, key: Key) -> Array:
        """Return the interpreter's own value of an output."""
        return np.asarray(self.allowed_sets[key].best)

    def reference_outputs(self) -> Outputs:
        """Return the interpreter's own values of all outputs."""
        return {k: self.reference_value(k) for k in self.allowed_sets}

    def interpret_stage_and_check_orders(self, stage: UOp) -> Outputs:
        """Interpret a stage and return its outputs. Raises Unsound if an order of unordered work changes them, and what
        the interpreter raises.
        """
        outputs = self.read_outputs_and_check_inputs_unchanged(run(stage, self.initial_memory).buffers)
        if not self.schedules:
            return outputs
        first = self._interpret_by_lanes_and_check_allowed_sets(stage) if _may_reorder_floats(stage) else outputs
        for seed in range(self.schedules):
            reordered = self.read_outputs_and_check_inputs_unchanged(run(stage, self.initial_memory, schedule=seed).buffers)
            fault = find_different_output(first, reordered, first.keys() & reordered.keys())
            if fault:
                raise Unsound(f"schedule {seed} gives something else: {fault.message}")
        return outputs

    def _interpret_by_lanes_and_check_allowed_sets(self, stage: UOp) -> Outputs:
        """Run the lane machine, which adds floats in another order than the machine of whole arrays. Raises Unsound if
        its outputs are not allowed.
        """
        outputs = self.read_outputs_and_check_inputs_unchanged(run(stage, self.initial_memory, lanes=True).buffers)
        fault = find_disallowed_output(self._expected, outputs, self.allowed_sets.keys() & outputs.keys())
        if fault:
            raise Unsound(f"lane by lane: {fault.message}")
        return outputs

    def read_outputs_and_check_inputs_unchanged(self, buffers: Mapping[str, Array]) -> Outputs:
        """Read the outputs that were written from the final contents of memory. Raises Unsound if memory was changed
        that the program only reads.
        """
        outputs: Outputs = {}
        for key, allowed in self.allowed_sets.items():
            name = key if isinstance(key, str) else _buffer_key(self.results[key].buffer)
            size = int(np.prod(allowed.shape))
            if not size:
                outputs[key] = self.reference_value(key)
            elif name in buffers:
                outputs[key] = buffers[name].reshape(-1)[:size].reshape(allowed.shape)
            elif name in self.inputs:  # a Store of the contents that are there already may be removed
                outputs[key] = np.asarray(self.inputs[name]).reshape(-1)[:size].reshape(allowed.shape)
        only_read = [k for k in sorted(self.inputs.keys() & buffers.keys()) if k not in outputs]
        changed = next((k for k in only_read if self._has_changed(k, buffers)), None)
        if changed:
            raise Unsound(f"{changed} was changed, which the program only reads")
        return outputs

    def _has_changed(self, key: str, buffers: Mapping[str, Array]) -> bool:
        """Return True if memory differs from the input. A sparse input, which is used in place, cannot."""
        given, left = np.asarray(self.inputs[key]), buffers[key]
        if is_sparse(given) and given.ctypes.data == left.ctypes.data:
            return False
        return not np.array_equal(bits_of(given).reshape(-1), bits_of(left).reshape(-1))

    def find_disallowed_or_changed_value(self, pass_name: str, graph: UOp, before: Outputs, after: Outputs) -> Fault | None:
        """Return the first thing wrong after pass `pass_name` of `graph`, which had the outputs `before`; None if all
        is right.
        """
        for key in self.allowed_sets:
            if fault := find_value_outside_allowed_set(self._expected, key, after):
                return fault
        for key, allowed in self.allowed_sets.items() if pass_must_keep_bits(pass_name, graph) else ():
            is_anything = np.isinf(allowed.measure_width_in_ulps_or_points_less_one())
            is_zero = (before[key] == 0) & (after[key] == 0)  # a zero whose sign counts is the only one in its set (R11)
            if fault := find_bit_difference_except_nan_payload(key, before[key], after[key], is_anything | is_zero):
                return fault
        return None

    def judge_pass(self, pass_name: str, graph: UOp, outputs: Outputs, after: UOp) -> tuple[Fault | None, Outputs]:
        """Interpret `after`, which pass `pass_name` made of a graph with `outputs`.

        Return what is wrong with it, and its outputs, which are empty if it cannot be run.
        """
        try:
            now = self.interpret_stage_and_check_orders(after)
        except MemoryError:
            raise
        except UopsError as e:  # a Trap, or a stage that the interpreter refuses
            return fault_of_failed_run(e), {}
        except Exception as e:
            return Fault("crash", f"the interpreter failed on it: {type(e).__name__}: {e}"), {}
        return self.find_disallowed_or_changed_value(pass_name, graph, outputs, now), now


def begin_judged_lowering_of_tensor_or_launch(
    given: UOp, entering: EnteringProgram, inputs: Mapping[str, Any], target: Target, config: Config, extra_orders: int = 0
) -> tuple[Judge, LoweringState]:
    """Return the judge of a program `given`, and the state in which its form `entering` goes through the passes."""
    launch = is_launch(entering.graph)
    state = LoweringState(target, config, private=entering.private, entry=entering.dialect)
    if launch:  # callify, which would tell this, is behind it
        state.external = frozenset(describe_launch(entering.graph, entering.private).arguments)
    return Judge(entering.graph if launch else given, inputs, extra_orders), state


def find_value_outside_allowed_set(expected: Expectation, key: Key, after: Outputs) -> Fault | None:
    """Return a Fault if an output is not in its allowed set at the strict level, else None."""
    if key not in after:
        return Fault("value", f"output {key} is never written", key)
    allowed_set, actual = expected.strict[key], after[key]
    best = np.asarray(allowed_set.best)
    if allowed_set.dtype is dt.index:
        actual = actual.astype(best.dtype)
    if actual.shape != tuple(allowed_set.shape) or actual.dtype != best.dtype:
        expected_type = f"{best.dtype} of shape {tuple(allowed_set.shape)}"
        return Fault("value", f"output {key} is {actual.dtype} of shape {actual.shape}, expected {expected_type}", key)
    if best.dtype == object:  # index values beyond int64 have one right answer each
        different = np.flatnonzero(np.asarray(best != actual).reshape(-1))
        if not different.size:
            return None
        element = int(different[0])
        wanted, got = best.reshape(-1)[element], actual.reshape(-1)[element]
        return Fault("value", f"output {key}, element {element}: got {got}, allowed {wanted}", key, element, str(got), str(wanted))
    accepted = expected.accepts(key, actual, ConformanceLevel.STRICT)
    if accepted.all():
        return None
    element = int(np.flatnonzero(~accepted)[0])
    allowed = format_value_with_bits(best.reshape(-1)[element]) if expected.by_bits else allowed_set.describe(element)
    return _value_fault(key, element, actual, allowed)


def pass_must_keep_bits(pass_name: str, graph: UOp) -> bool:
    """Return True if a pass must preserve every bit of the outputs of `graph`.

    Where values are on several devices, callify reduces each device's part first, so that the order of a Reduce changes.
    """
    guarantee, _ = KEEPS.get(pass_name, (Preservation.SET, ""))
    if pass_name == "callify" and any(isinstance(u.device, tuple) for u in toposort(graph)):
        guarantee = Preservation.ORDERED
    exempt = _EXEMPT_OPS[guarantee]
    return exempt is not None and not _has_floats(graph, exempt)


def _may_reorder_floats(graph: UOp) -> bool:
    """Return True if the order in which `graph` is evaluated may change its outputs."""
    return _has_floats(graph, _REDUCING)


def _has_floats(graph: UOp, ops: frozenset[Op]) -> bool:
    return any(u.dtype.is_float and u.op in ops for u in toposort(graph))


#: Ops that combine floats in any order (R32).
_REDUCING = frozenset({Op.REDUCE, Op.WMMA})
#: Guarantee -> the ops on floats with several right answers, of which a pass may choose another; None exempts every program.
_EXEMPT_OPS: dict[Preservation, frozenset[Op] | None] = {
    Preservation.BITS: frozenset(),
    Preservation.ORDERED: _REDUCING,
    Preservation.CODE: (SEVERAL_RESULTS & SELECTED_OPS) | {Op.WMMA},
    Preservation.SET: None,
}


def find_disallowed_output(expected: Expectation, outputs: Outputs, keys: Iterable[Key] | None = None) -> Fault | None:
    """Return the Fault of the first output, of all or of `keys`, that is not in its allowed set; None if there is none."""
    chosen = expected.strict if keys is None else keys
    return next((f for k in chosen if (f := find_value_outside_allowed_set(expected, k, outputs))), None)


def find_different_output(before: Outputs, after: Outputs, keys: Iterable[Key] | None = None) -> Fault | None:
    """Return the Fault of the first output, of all before or of `keys`, whose bits differ but for NaNs; None if there is none."""
    chosen = before if keys is None else keys
    return next((f for k in chosen if (f := find_bit_difference_except_nan_payload(k, before[k], after[k]))), None)


def find_bit_difference_except_nan_payload(
    key: Key, before: Array, after: Array, ignored_mask: Array | None = None
) -> Fault | None:
    """Return a Fault for the first element whose bits differ, or None. Two NaNs are equal (R20: all NaNs are one class).
    Elements in the mask `ignored_mask` may differ.
    """
    x, y = before.reshape(-1), after.reshape(-1)
    if x.dtype == object:
        x = x.astype(y.dtype)
    equal = bits_of(x) == bits_of(y)
    if not equal.all() and x.dtype.kind not in "iub":
        equal |= np.isnan(x.astype(np.float64)) & np.isnan(y.astype(np.float64))
    if ignored_mask is not None:
        equal |= ignored_mask.reshape(-1)
    if equal.all():
        return None
    element = int(np.flatnonzero(~equal)[0])
    return _value_fault(key, element, after, f"{format_value_with_bits(x[element])}, as before")


def _value_fault(key: Key, element: int, got: Array, allowed: str) -> Fault:
    spelled = format_value_with_bits(got.reshape(-1)[element])
    return Fault("value", f"output {key}, element {element}: got {spelled}, allowed {allowed}", key, element, spelled, allowed)


def _buffer_key(buffer: UOp) -> str:
    return f"b{buffer.arg.unique}"


def _make_contents_unlike_expected(buffer: UOp, value: Array) -> Array:
    """Return initial contents for an output's Buffer that differ from the expected value in every element."""
    if value.dtype == object:  # an index beyond int64, which no Buffer holds
        return np.zeros(buffer.arg.size, np.int64)
    contents = np.zeros(buffer.arg.size, value.dtype)
    if value.dtype == np.bool_:
        contents[: value.size] = ~value.reshape(-1)
    else:
        bits_of(contents)[: value.size] = ~bits_of(value).reshape(-1)
    return contents
