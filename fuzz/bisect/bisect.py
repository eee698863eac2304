"""Bisection of a lowering: the first pass whose result is not one that the stage before it allows.

Takes: a TENSOR graph or kernels written by hand, which enter at the stage of their dialect (R166); inputs, a target of the
compiler, and the passes. Gives: None if all stages agree, else a `Finding` with the stage, the pass, its step or rewrite rule, the
kernel and the first wrong element. A pass is also wrong if it raises, if its result is ill-formed, or if the interpreter finds a
Trap or a race in its result. The last stage is the target's machine code, under the name `backend`. Spec: Lowering Pipeline.

Raises what the program's own run raises (Trap, SpecError). Raises CompileError or Unsupported if the compiler refuses the
program, which is no finding.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from uops.backends import npz
from uops.backends.answer import memory_key
from uops.backends.conformance.stage_judge import (
    Fault,
    Judge,
    Key,
    Outputs,
    begin_judged_lowering_of_tensor_or_launch,
    fault_of_failed_run,
    pass_must_keep_bits,
)
from uops.compiler import config as configuration
from uops.compiler.config import Config
from uops.compiler.entry import convert_to_launch_or_tensor_graph
from uops.compiler.ir.bodies import list_possibly_written_arguments
from uops.compiler.log import record_transforms
from uops.compiler.pipeline import PIPELINE, LoweringState, Pass, passes_from, run_pass_and_verify
from uops.compiler.target import Target
from uops.fuzz.bisect.replay import mask_differing_elements
from uops.fuzz.bisect.wrong_rule import find_wrong_step
from uops.fuzz.oracles.native import load_and_run_first_calls, view_flat_memory_of_argument
from uops.interp import run
from uops.spec.errors import CompileError, Unsupported
from uops.spec.ir.node import UOp
from uops.spec.ir.ops import MEMORY_ROOTS, Op
from uops.spec.ir.scope import base_memory
from uops.spec.ir.text import show
from uops.spec.untrusted import escape_to_one_line, write_text
from uops.spec.verify.infer import infer_tensor_kernel_or_bestiary_dialect

#: Name of the last stage and pass: the target's machine code.
BACKEND = "backend"
#: Runs the machine code of a PROGRAM graph: (program, inputs) -> outputs. Whatever it raises is a finding.
Execute = Callable[[UOp, Mapping[str, Any]], Outputs]
#: Errors that are refusals of a program, not findings.
_REFUSALS = (CompileError, Unsupported, MemoryError)


class Finding(NamedTuple):
    """The wrong pass `pass_` of `stage`.

    If they are known, `step` is the step of the pass and `kernel` the number and name of the Call. `rule` is a rewrite rule
    that does not hold. `before` and `after` are texts of that kernel, or of the whole graph, around the wrong pass or step.
    """

    stage: str
    pass_: str
    step: str | None
    kernel: str | None
    fault: Fault
    before: str
    after: str
    rule: str | None = None

    def __str__(self) -> str:
        steps = (self.step and f"step {self.step}", self.rule and f"rule {self.rule}")
        places = (f"stage {self.stage}", f"pass {self.pass_}", *steps, self.kernel)
        return f"{', '.join(p for p in places if p)}: {self.fault.kind}: {self.fault.message}"

    def to_json(self) -> dict[str, Any]:
        """Return everything but the texts as a JSON object."""
        head = {"stage": self.stage, "pass": self.pass_, "step": self.step, "rule": self.rule, "kernel": self.kernel}
        return head | self.fault._asdict()

    def write_to_directory(self, directory: Path, program: UOp, inputs: Mapping[str, Any]) -> list[Path]:
        """Write the program, its inputs, the finding and its two texts into a directory; return their paths."""
        directory.mkdir(parents=True, exist_ok=True)
        texts = {
            "program.uops": show(program),
            "finding.json": json.dumps(self.to_json(), indent=2) + "\n",
            "before.uops": self.before,
            "after.txt" if self.pass_ == BACKEND else "after.uops": self.after,
        }
        for name, text in texts.items():
            write_text(directory / name, text)
        npz.save(directory / "inputs.npz", inputs)
        return [*(directory / name for name in texts), directory / "inputs.npz"]


def bisect(
    graph: UOp, inputs: Mapping[str, Any], target: Target, passes: Sequence[Pass] = PIPELINE, *,
    execute: Execute | None = None, extra_orders: int = 0, config: Config | None = None,
) -> Finding | None:  # fmt: skip
    """Find the first pass that is wrong for `graph` on `inputs`; return None if there is none.

    `execute` runs the machine code, by default in this process. `extra_orders` is the number of additional orders of unordered
    work in which each stage is interpreted. `config` holds the compiler's settings, by default those of the process.
    """
    bisection = _Bisection(graph, inputs, target, config or configuration.default_config(), extra_orders)
    return bisection.find_first_wrong_pass_or_machine_code(passes, execute)


class _Bisection:
    """The state of a bisection: the last correct graph, and its outputs."""

    def __init__(self, graph: UOp, inputs: Mapping[str, Any], target: Target, config: Config, extra_orders: int) -> None:
        self.target = target
        entering = convert_to_launch_or_tensor_graph(graph, infer_tensor_kernel_or_bestiary_dialect(graph))
        self.graph = entering.graph
        self.judge, self.state = begin_judged_lowering_of_tensor_or_launch(
            graph, entering, inputs, target, replace(config, verify=True), extra_orders
        )
        self.outputs: Outputs = self.judge.reference_outputs()
        self.names: list[str] = []

    def find_first_wrong_pass_or_machine_code(
        self, passes: Sequence[Pass], execute_or_run_natively: Execute | None
    ) -> Finding | None:
        """Judge all passes and then the machine code; return the first finding."""
        for p in passes_from(self.state.entry, passes):
            finding = self._run_pass_and_advance_unless_wrong(p, self.state)
            if finding is not None:
                return finding
        return self._judge_machine_code(execute_or_run_natively or self._run_natively)

    def _run_pass_and_advance_unless_wrong(self, p: Pass, state: LoweringState) -> Finding | None:
        """Run and judge one pass; advance to its result if it is right."""
        state.steps = {}
        try:
            after = run_pass_and_verify(p, self.graph, state)
        except _REFUSALS:
            raise
        except Exception as e:  # any failure of a pass is a finding
            return Finding(p.stage, p.name, None, None, fault_of_failed_run(e), show(self.graph), "")
        fault, outputs = self._evaluate_and_judge_stage(p.name, after) if after is not self.graph else (None, self.outputs)
        if fault is not None:
            finding = self._localize_fault_to_pass_step_and_kernel(p, fault, after, state.steps)
            return finding._replace(rule=self._rerun_pass_and_find_refuted_rule(p, state))
        self.graph, self.outputs = after, outputs
        self.names = list_kernel_names_or_keep_if_unnamed(after, self.names)
        return None

    def _evaluate_and_judge_stage(self, pass_name: str, after: UOp) -> tuple[Fault | None, Outputs]:
        """Interpret the result of pass `pass_name`; return what is wrong with it, and its outputs."""
        return self.judge.judge_pass(pass_name, self.graph, self.outputs, after)

    # Localization inside of a pass

    def _localize_fault_to_pass_step_and_kernel(self, p: Pass, fault: Fault, after: UOp, steps: Mapping[str, UOp]) -> Finding:
        """Return the finding of a wrong pass with its step and its kernel."""
        before, step = self.graph, None
        for name, graph in steps.items():
            step_fault, _ = self._evaluate_and_judge_stage(p.name, graph)
            if step_fault is not None:
                step, fault, after = name, step_fault, graph
                break
            before = graph
        names = list_kernel_names_or_keep_if_unnamed(after, self.names)
        k, kernel_fault = self._find_kernel_wrong_when_replaced_alone(p.name, before, after)
        if k is None:
            k = find_last_kernel_writing_output(after, self.judge, fault.output)
            return Finding(p.stage, p.name, step, k if k is None else describe_kernel(k, names), fault, show(before), show(after))
        texts = show(before.src[k].body), show(after.src[k].body)
        return Finding(p.stage, p.name, step, describe_kernel(k, names), kernel_fault or fault, *texts)

    def _find_kernel_wrong_when_replaced_alone(self, pass_name: str, before: UOp, after: UOp) -> tuple[int | None, Fault | None]:
        """Find the first kernel that makes a right launch wrong when it alone is replaced; return its number and the
        fault.
        """
        if not launches_pass_same_memory(before, after):
            return None, None
        for k in range(len(after.src)):
            if before.src[k] is after.src[k]:
                continue
            fault, _ = self._evaluate_and_judge_stage(
                pass_name, after.replace(src=(*before.src[:k], after.src[k], *before.src[k + 1 :]))
            )
            if fault is not None:
                return k, fault
        return None, None

    def _rerun_pass_and_find_refuted_rule(self, p: Pass, state: LoweringState) -> str | None:
        """Return a rule that the pass applied and that does not hold, or None."""
        with record_transforms() as log:
            run_pass_and_verify(p, self.graph, replace(state, steps=None))
        wrong_step = find_wrong_step(s for m in log.transforms for s in m.steps)
        return None if wrong_step is None else wrong_step.rule

    # Machine code
    def _run_natively(self, program: UOp, inputs: Mapping[str, Any]) -> Outputs:
        return self.judge.read_outputs_and_check_inputs_unchanged(
            load_and_run_first_calls(program, self.target, self.judge.initial_memory)
        )

    def _judge_machine_code(self, execute: Execute) -> Finding | None:
        try:
            outputs = execute(self.graph, self.judge.inputs)
        except _REFUSALS:
            raise
        except Exception as e:  # a worker crashed, the time ran out, or the code trapped
            return Finding(BACKEND, BACKEND, None, None, fault_of_failed_run(e), show(self.graph), "")
        fault = self.judge.find_disallowed_or_changed_value(BACKEND, self.graph, self.outputs, outputs)
        if fault is None:
            return None
        k = self._find_kernel_that_differs_natively()
        if k is None:
            return Finding(BACKEND, BACKEND, None, None, fault, show(self.graph), "")
        linear, source, *_ = self.graph.src[k].body.src
        return Finding(BACKEND, BACKEND, None, describe_kernel(k, self.names), fault, show(linear), str(source.arg.code))

    def _find_kernel_that_differs_natively(self) -> int | None:
        """Find the first kernel that leaves other memory on the target than in the interpreter; return its number.

        The target executes it on the memory that the interpreter's kernels before it left. A kernel whose code must keep every
        bit is preferred to one that may give another right answer.
        """
        exempt: int | None = None
        before = self.judge.initial_memory
        for k, call in enumerate(self.graph.src):
            launch = self.graph.replace(src=(call,))
            expected = run(self.graph.replace(src=self.graph.src[: k + 1]), self.judge.initial_memory).buffers
            actual = load_and_run_first_calls(launch, self.target, before)
            arguments = [a for a in memory_arguments_call_may_write(call) if memory_key(base_memory(a)) in expected]
            if any(
                np.any(mask_differing_elements(*[view_flat_memory_of_argument(a, memory) for memory in (expected, actual)]))
                for a in arguments
            ):
                if pass_must_keep_bits(BACKEND, launch):
                    return k
                exempt = k if exempt is None else exempt
            before = self.judge.initial_memory | expected
        return exempt


def describe_kernel(k: int, names: Sequence[str]) -> str:
    """Describe a kernel in a report, by number and name."""
    return f"kernel {k} of {len(names)} ({escape_to_one_line(names[k])})" if k < len(names) else f"kernel {k}"


def list_kernel_names_or_keep_if_unnamed(graph: UOp, previous_names: list[str]) -> list[str]:
    """List the names of a launch's kernels. Lists of instructions have no names, so those of an earlier stage are kept."""
    if graph.op is not Op.LINEAR:
        return previous_names
    names = [call.body.arg.name if call.body.op is Op.SINK and call.body.arg else "" for call in graph.src]
    return names if all(names) or len(names) != len(previous_names) else previous_names


def launches_pass_same_memory(before: UOp, after: UOp) -> bool:
    """Return True if a kernel of one launch can replace that of the other: both launches pass the same memory to their
    kernels.
    """
    if not before.op is after.op is Op.LINEAR or len(before.src) != len(after.src):
        return False
    return all(x.arguments == y.arguments for x, y in zip(before.src, after.src))


def memory_arguments_call_may_write(call: UOp) -> Iterator[UOp]:
    """Yield the memory arguments that a Call may write (R63)."""
    return (a for a in list_possibly_written_arguments(call) if base_memory(a).op in MEMORY_ROOTS)


def find_last_kernel_writing_output(graph: UOp, judge: Judge, output: Key | None) -> int | None:
    """Return the number of the last kernel of a launch that writes an output's memory, or None."""
    if graph.op is not Op.LINEAR or output is None:
        return None
    name = output if isinstance(output, str) else memory_key(judge.results[output].buffer)
    writers = [
        k for k, c in enumerate(graph.src) if any(memory_key(base_memory(a)) == name for a in memory_arguments_call_may_write(c))
    ]
    return writers[-1] if writers else None
