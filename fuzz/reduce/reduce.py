"""The reducer: a search for the smallest sample that still fails in the same way.

Takes: a sample, and `fails`, which says whether a sample fails like the first one. Gives: a failing sample of which no shrink
of `uops.fuzz.reduce.shrinks` makes a smaller failing one, or the best one found within `max_questions` questions. Every
accepted step lowers `measure_sample`, so that reduction ends.

All candidates are well-formed. They also evaluate in the interpreter if the first sample does; if it does not, the
interpreter's error may be the failure to look for.

`fails_in_fresh_process` asks the same question in a fresh process. With it, the last questions are whether the result fails
there. If it does not, as with a failure that occurs only sometimes, larger samples on the way are asked about. If none of `LAST`
fails, the first sample is returned.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np

from uops.backends.testing.sparse import is_sparse
from uops.fuzz.generate.kinds import KINDS, ProgramSample
from uops.fuzz.reduce.reproducer import count_nodes
from uops.fuzz.reduce.shrinks import SHRINKS, Shrink, nonzero
from uops.interp import run
from uops.spec.ir import build as b
from uops.spec.ir import dtypes as dt
from uops.spec.ir.node import UOp, toposort
from uops.spec.ir.ops import Op
from uops.spec.verify.dialects import Dialect
from uops.spec.verify.verifier import verify

#: Maximum number of questions; each one may run a bisection.
MOST = 500
#: Maximum number of questions that are reserved for `fails_in_fresh_process`.
LAST = 8


class SampleMeasure(NamedTuple):
    """A measure of a sample, most important first; smaller ones are better.

    `weight` is that of the inputs' elements. `unusual_constants` are those other than 0 and 1, and those that are 1, at half the
    weight.
    """

    nodes: int
    optop_text_length: int
    elements: int
    unusual_dtypes: int
    weight: int
    unusual_constants: int


def reduce_sample(
    sample: ProgramSample, fails: Callable[[ProgramSample], bool], max_questions: int = MOST,
    fails_in_fresh_process: Callable[[ProgramSample], bool] | None = None, before_each_candidate: Callable[[], None] = lambda: None,
) -> ProgramSample:  # fmt: skip
    """Return the smallest failing sample found.

    With `fails_in_fresh_process` it is the smallest of the last candidates that fails there, or `sample` itself.
    `before_each_candidate` is called before each candidate; an exception that it raises ends the reduction. A sample with a
    sparse array is returned as it is, since shrinks copy arrays.
    """
    if any(map(is_sparse, sample.inputs.values())):
        return sample
    if fails_in_fresh_process is None:
        return _SampleReducer(sample, fails, max_questions, before_each_candidate).reduce_until_stable()
    last = min(LAST, max_questions // 2)
    reduction = _SampleReducer(sample, fails, max_questions - last, before_each_candidate)
    reduction.reduce_until_stable()
    return next((s for s in [*reversed(reduction.best_by_size.values())][:last] if fails_in_fresh_process(s)), sample)


class _SampleReducer:
    """The state of one reduction."""

    def __init__(
        self, sample: ProgramSample, fails: Callable[[ProgramSample], bool], max_questions: int, before_each: Callable[[], None]
    ) -> None:
        self.best = sample
        self.before_each = before_each
        self.measure = measure_sample(sample)
        # The smallest accepted sample of each number of nodes, in the order of acceptance.
        self.best_by_size: dict[int, ProgramSample] = {}
        self.fails = fails
        self.questions_left = max_questions
        self.tried: set[object] = set()
        self.evaluates = is_well_formed_and_evaluates(sample)

    def reduce_until_stable(self) -> ProgramSample:
        """Apply all shrinks in rounds until a round changes nothing."""
        before: SampleMeasure | None = None
        while before != self.measure and self.questions_left > 0:
            before = self.measure
            for shrink in SHRINKS:
                while self.questions_left > 0 and self._accept_first_failing_candidate(shrink):
                    pass
        return self.best

    def _accept_first_failing_candidate(self, shrink: Shrink) -> bool:
        """Try the candidates of a shrink; return True at the first accepted one."""
        candidates = shrink(self.best)
        while self.questions_left > 0 and (c := _next_candidate_or_none_on_error(candidates)) is not None:
            if self._accept_if_smaller_and_still_fails(c):
                return True
        return False

    def _accept_if_smaller_and_still_fails(self, candidate: ProgramSample) -> bool:
        self.before_each()
        try:
            m = measure_sample(candidate)
        except Exception:
            return False
        if (
            m >= self.measure
            or not self._mark_tried_if_new(candidate)
            or not is_well_formed_and_evaluates(candidate, self.evaluates)
        ):
            return False
        self.questions_left -= 1
        if not self.fails(candidate):
            return False
        self.best, self.measure, self.best_by_size[m.nodes] = candidate, m, candidate
        return True

    def _mark_tried_if_new(self, candidate: ProgramSample) -> bool:
        contents = tuple((k, _make_key_of_elements(np.asarray(v))) for k, v in sorted(candidate.inputs.items()))
        key = (candidate.graph, candidate.opts, contents)
        if key in self.tried:
            return False
        self.tried.add(key)
        return True


def _make_key_of_elements(a: np.ndarray[Any, Any]) -> bytes | str:
    """Return a key that arrays of equal elements share. The bytes of an array of Python ints would be addresses."""
    return str(a.tolist()) if a.dtype == object else a.tobytes()


def _next_candidate_or_none_on_error(candidates: Iterator[ProgramSample]) -> ProgramSample | None:
    """Return the next candidate, or None at the end and if the shrink built an impossible graph."""
    try:
        return next(candidates, None)
    except Exception:
        return None


def measure_sample(s: ProgramSample) -> SampleMeasure:
    """Measure a sample; its inputs weigh by their nonzero elements and bits."""
    order = toposort(s.graph)
    elements = sum(int(np.prod([n for n in u.shape if isinstance(n, int)])) for u in order if u.dtype not in (dt.void, dt.index))
    unusual_dtypes = len({u.dtype for u in order} - {dt.void, dt.index, dt.float32, dt.int32, dt.bool_})
    weight = sum(_weigh_nonzeros_and_bits(v) for v in s.inputs.values())
    constants = [u.const for u in order if u.op is Op.CONST and u.dtype is not dt.index]
    unusual_constants = sum(0 if c == 0 else 1 if c == 1 else 2 for c in constants)
    return SampleMeasure(count_nodes(s), len(s.opts or ""), elements, unusual_dtypes, weight, unusual_constants)


def _weigh_nonzeros_and_bits(v: object) -> int:
    a = np.asarray(v)
    if a.dtype == object:
        return sum(int(x).bit_length() for x in a.reshape(-1))
    data = np.ascontiguousarray(a).reshape(-1)
    bits = np.unpackbits(data.view(np.uint8))
    return int(np.count_nonzero(nonzero(data))) * 64 + int(bits.sum())


def is_well_formed_and_evaluates(s: ProgramSample, must_evaluate: bool = True) -> bool:
    """Return True if the sample is well-formed and, with `must_evaluate`, the interpreter evaluates it without an error."""
    try:
        verify(s.graph, KINDS[s.kind].dialect)
        _verify_instruction_lists(s.graph)
        if must_evaluate:
            run(s.graph, s.inputs)
    except Exception:
        return False
    return True


def _verify_instruction_lists(root: UOp) -> None:
    """Verify the lists of instructions that a TENSOR program calls, whose dialect leaves bodies open. Raises SpecError."""
    for call in (u for u in toposort(root) if u.op is Op.CALL and u.body.op is Op.LINEAR):
        params = {u.arg.slot: u for u in toposort(call.body) if u.op is Op.PARAM}
        arguments = [params.get(k, b.buffer(1, dt.int32, unique=0)) for k in range(len(call.arguments))]
        verify(UOp(Op.LINEAR, (b.call(call.body, *arguments),)), Dialect.LINEAR)
