"""Which pass breaks a program: the first one whose result is not what the stage before it may give.

Takes: a TENSOR graph, inputs, a target of the compiler, and the passes. Gives: None if all stages agree, else a `Finding` that
names the stage, the pass, in it the step or the rewrite rule, the kernel, and the first wrong element. A pass that fails,
whose result is not well-formed, or in whose result the interpreter finds a Trap or a race, is found by that. The last stage is the
target's machine code, under the name `backend`. Spec: Lowering Pipeline.

Raises what the program's own run raises (Trap, SpecError), and CompileError or Unsupported where the compiler refuses the program:
then there is nothing wrong, only nothing.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from uops.backends import npz
from uops.compiler import config as configuration
from uops.compiler.config import Config
from uops.compiler.log import recording
from uops.compiler.pipeline import PIPELINE, Lowering, Pass, run_pass
from uops.compiler.target import Target
from uops.fuzz.bisect.wrong_rule import wrong_step
from uops.fuzz.oracles.native import base, key, run_program, view
from uops.fuzz.oracles.stages import Fault, Judge, Key, Outputs
from uops.interp import run
from uops.spec.errors import CompileError, Unsupported, UopsError
from uops.spec.ir.node import UOp
from uops.spec.ir.ops import Op
from uops.spec.ir.text import show
from uops.spec.untrusted import quote_name, write_text

BACKEND = "backend"
#: Runs the machine code of a PROGRAM graph: (program, inputs) -> outputs. Its failure is the finding.
Execute = Callable[[UOp, Mapping[str, Any]], Outputs]
#: Where the classes of errors that a finding may be called after are defined.
_NAMED = (UopsError.__module__, Exception.__module__)
_REFUSED = (CompileError, Unsupported, MemoryError)


class Finding(NamedTuple):
    """`pass_` of `stage` is wrong: `step` is the step of the pass, `kernel` the number of the Call and its name, `rule` a rewrite
    rule that does not hold, where they are known. `before` and `after` are texts of that kernel, or of the whole graph, on either
    side."""

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
        """Everything but the texts."""
        head = {"stage": self.stage, "pass": self.pass_, "step": self.step, "rule": self.rule, "kernel": self.kernel}
        return head | self.fault._asdict()

    def write(self, out: Path, graph: UOp, inputs: Mapping[str, Any]) -> list[Path]:
        """The program, its inputs, the finding and its two texts, into a directory; gives their paths."""
        out.mkdir(parents=True, exist_ok=True)
        texts = {
            "program.uops": show(graph),
            "finding.json": json.dumps(self.to_json(), indent=2) + "\n",
            "before.uops": self.before,
            "after.txt" if self.pass_ == BACKEND else "after.uops": self.after,
        }
        for name, text in texts.items():
            write_text(out / name, text)
        npz.save(out / "inputs.npz", inputs)
        return [*(out / name for name in texts), out / "inputs.npz"]


def bisect(
    graph: UOp, inputs: Mapping[str, Any], target: Target, passes: Sequence[Pass] = PIPELINE, *,
    execute: Execute | None = None, schedules: int = 0, config: Config | None = None,
) -> Finding | None:  # fmt: skip
    """The first pass that is wrong for `graph` on `inputs`. `execute` runs the program in place of this process; `schedules` says
    under how many more orders of what is unordered each stage is run; `config` holds the compiler's settings, those of the process
    without it."""
    return _Bisection(graph, inputs, target, schedules).search(passes, execute, config or configuration.default())


class _Bisection:
    """The state of a search: where we are, and what it gave."""

    def __init__(self, graph: UOp, inputs: Mapping[str, Any], target: Target, schedules: int) -> None:
        self.judge = Judge(graph, inputs, schedules)
        self.target = target
        self.graph = graph
        self.found: Outputs = self.judge.outputs()
        self.names: list[str] = []

    def search(self, passes: Sequence[Pass], execute: Execute | None, config: Config) -> Finding | None:
        state = Lowering(self.target, replace(config, verify=True))
        for p in passes:
            finding = self._pass(p, state)
            if finding is not None:
                return finding
        return self._backend(execute or self._native)

    def _pass(self, p: Pass, state: Lowering) -> Finding | None:
        """Judge one pass, and go on from what it gave."""
        state.steps = {}
        try:
            after = run_pass(p, self.graph, state)
        except _REFUSED:
            raise
        except Exception as e:  # whatever way a pass fails is what we look for
            return Finding(p.stage, p.name, None, None, ended(e), show(self.graph), "")
        fault, found = self._try(p.name, after) if after is not self.graph else (None, self.found)
        if fault is not None:
            found_at = self._closer(p, fault, after, state.steps)
            return found_at._replace(rule=self._rule(p, state))
        self.graph, self.found = after, found
        self.names = kernel_names(after, self.names)
        return None

    def _try(self, name: str, after: UOp) -> tuple[Fault | None, Outputs]:
        """What is wrong with `after` as the result of pass `name`, and its outputs."""
        try:
            found = self.judge.run(after)
        except MemoryError:
            raise
        except UopsError as e:  # a Trap, or a stage that the interpreter refuses
            return ended(e), {}
        except Exception as e:
            return Fault("crash", f"the interpreter failed on it: {type(e).__name__}: {e}"), {}
        return self.judge.fault(name, self.graph, self.found, found), found

    # Where inside of a pass.

    def _closer(self, p: Pass, fault: Fault, after: UOp, steps: Mapping[str, UOp]) -> Finding:
        """The finding with its step and its kernel."""
        before, step = self.graph, None
        for name, graph in steps.items():
            found, _ = self._try(p.name, graph)
            if found is not None:
                step, fault, after = name, found, graph
                break
            before = graph
        names = kernel_names(after, self.names)
        k, found = self._kernel(p.name, before, after)
        if k is None:
            k = writer(after, self.judge, fault.output)
            return Finding(p.stage, p.name, step, k if k is None else kernel(k, names), fault, show(before), show(after))
        texts = show(before.src[k].src[0]), show(after.src[k].src[0])
        return Finding(p.stage, p.name, step, kernel(k, names), found or fault, *texts)

    def _kernel(self, name: str, before: UOp, after: UOp) -> tuple[int | None, Fault | None]:
        """The first kernel that makes a good launch wrong when it is replaced, and what is wrong then."""
        if not exchangeable(before, after):
            return None, None
        for k in range(len(after.src)):
            if before.src[k] is after.src[k]:
                continue
            fault, _ = self._try(name, after.replace(src=(*before.src[:k], after.src[k], *before.src[k + 1 :])))
            if fault is not None:
                return k, fault
        return None, None

    def _rule(self, p: Pass, state: Lowering) -> str | None:
        """A rule that the pass applied and that does not hold."""
        with recording() as log:
            p.run(self.graph, replace(state, steps=None))
        found = wrong_step(s for m in log.moves for s in m.steps)
        return None if found is None else found.rule

    # Machine code.

    def _native(self, program: UOp, inputs: Mapping[str, Any]) -> Outputs:
        return self.judge.read(run_program(program, self.target, self.judge.given))

    def _backend(self, execute: Execute) -> Finding | None:
        try:
            found = execute(self.graph, self.judge.inputs)
        except _REFUSED:
            raise
        except Exception as e:  # a crash of a worker, a time-out, a trap
            return Finding(BACKEND, BACKEND, None, None, ended(e), show(self.graph), "")
        fault = self.judge.fault(BACKEND, self.graph, self.found, found)
        if fault is None:
            return None
        k = self._wrong_code()
        if k is None:
            return Finding(BACKEND, BACKEND, None, None, fault, show(self.graph), "")
        linear, source = self.graph.src[k].src[0].src[:2]
        return Finding(BACKEND, BACKEND, None, kernel(k, self.names), fault, show(linear), str(source.arg.code))

    def _wrong_code(self) -> int | None:
        """The first kernel after which the target's memory is not the interpreter's."""
        for k, call in enumerate(self.graph.src):
            want = run(self.graph.replace(src=self.graph.src[: k + 1]), self.judge.given).buffers
            got = run_program(self.graph, self.target, self.judge.given, k + 1)
            if any(not _alike(view(a, want), view(a, got)) for a in written(call) if key(base(a)) in want):
                return k
        return None


def _alike(x: Any, y: Any) -> bool:
    if x.dtype.kind in "iub":
        return bool(np.array_equal(x, y))
    a, b = x.astype(np.float64), y.astype(np.float64)
    return bool(np.array_equal(a, b, equal_nan=True) and np.array_equal(np.signbit(a)[a == a], np.signbit(b)[a == a]))


def ended(e: BaseException) -> Fault:
    """The fault of a run that did not come to its end; its kind is the class of the error, a broken assertion a crash as any."""
    kind = next(c for c in type(e).__mro__ if c.__module__ in _NAMED)
    return Fault(kind.__name__.lower(), str(e) or kind.__name__)


def kernel(k: int, names: Sequence[str]) -> str:
    """How a kernel is called in a report."""
    return f"kernel {k} of {len(names)} ({quote_name(names[k])})" if k < len(names) else f"kernel {k}"


def kernel_names(graph: UOp, known: list[str]) -> list[str]:
    """The names of a launch's kernels; of instruction lists, which have none, those known from before."""
    if graph.op is not Op.LINEAR:
        return known
    names = [c.src[0].arg.name if c.src[0].op is Op.SINK and c.src[0].arg else "" for c in graph.src]
    return names if all(names) or len(names) != len(known) else known


def exchangeable(before: UOp, after: UOp) -> bool:
    """Whether the kernels of two launches may take each other's place: they do the same with the same memory."""
    if not before.op is after.op is Op.LINEAR or len(before.src) != len(after.src):
        return False
    return all(x.src[1:] == y.src[1:] for x, y in zip(before.src, after.src))


def written(call: UOp) -> Iterator[UOp]:
    """The arguments that a Call writes; without a declaration, all (R63)."""
    slots: Iterable[int] = range(len(call.src) - 1) if call.arg is None or call.arg.written is None else call.arg.written
    return (call.src[1 + k] for k in slots if base(call.src[1 + k]).op in (Op.BUFFER, Op.PARAM))


def writer(graph: UOp, judge: Judge, output: Key | None) -> int | None:
    """The last kernel of a launch that writes an output's memory."""
    if graph.op is not Op.LINEAR or output is None:
        return None
    name = output if isinstance(output, str) else key(judge.results[output].buffer)
    found = [k for k, c in enumerate(graph.src) if any(key(base(a)) == name for a in written(c))]
    return found[-1] if found else None
