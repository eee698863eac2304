"""The causes of one segment's wrong elements, asked in order, and of a program that gave no result."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from uops.backends.conformance.causes.elements import ELEMENT_CAUSES, are_elements_misplaced
from uops.backends.conformance.causes.programs import PROGRAM_CAUSES, ProgramCause
from uops.backends.conformance.judge import (
    Expectation,
    SegmentVerdict,
    bits_of,
    describe_shape_dtype_mismatch,
    judge,
    make_element_failure,
    outputs_of,
)
from uops.backends.conformance.model import REFUSED, ConformanceLevel, Segment
from uops.interp.allowed import AllowedResult, AllowedSet
from uops.spec.ir import dtypes as dt
from uops.spec.result import Result

Array = npt.NDArray[Any]
Mask = npt.NDArray[np.bool_]

#: Causes that are neither a program nor a property of elements, with their texts.
MISPLACED, ZEROS, FORM, TIMEOUT, CRASH, TRAP = "misplaced", "unwritten", "form", "timeout", "crash", "trap"
#: Elements without a cause.
UNEXPLAINED = "unexplained"
#: Prefixes of the ids of an exception and of a refusal, which are followed by its text.
EXCEPTION, REFUSAL = "exception: ", "refused: "
TEXTS: dict[str, str] = {
    **{c.id: c.text for c in PROGRAM_CAUSES},
    **{c.id: c.text for c in ELEMENT_CAUSES},
    MISPLACED: "the right elements stand at other places",
    ZEROS: "what is wrong otherwise is zero, as if it had not been written",
    FORM: "an output is missing, or has another shape or dtype",
    TIMEOUT: "a program does not end in time",
    CRASH: "the process of the backend ends",
    TRAP: "the program is stopped by a trap",
    UNEXPLAINED: "another value, which no cause here explains",
}
#: Fewest zeros that count as unwritten.
_LEAST_ZEROS = 4


def judge_and_explain(expected: Expectation, result: Result, level: ConformanceLevel) -> list[SegmentVerdict]:
    """Judge every segment of a case, and count wrong elements by cause. The first failures are one example per cause."""
    arrays, verdicts, changed = outputs_of(result), judge(expected, result, level), ChangedPrograms(expected, level)
    for v in verdicts:
        if v.failed:
            _add_causes_with_an_example_of_each(v, changed, arrays.get(v.segment.output))
    return verdicts


class ChangedPrograms:
    """The programs into which the causes change that of a case, each evaluated at most once, for all segments of the case."""

    def __init__(self, expected: Expectation, level: ConformanceLevel) -> None:
        self.expected, self.level = expected, level
        self._sets: dict[str, AllowedResult | None] = {}

    def get_output(self, cause: ProgramCause, output: int | str) -> AllowedSet | None:
        """Return the allowed set of an output; None if the program cannot be changed or evaluated, or lacks the output."""
        if cause.id not in self._sets:
            self._sets[cause.id] = self._evaluate(cause)
        sets = self._sets[cause.id]
        if sets is None:
            return None
        if isinstance(output, str):
            return sets.buffers.get(output)
        return sets.values[output] if output < len(sets.values) else None

    def _evaluate(self, cause: ProgramCause) -> AllowedResult | None:
        case = self.expected.case
        try:
            changed = cause.change(case.meaning or case.graph, case.inputs)
            return None if changed is None else self.expected.compute_allowed_sets_of_program(*changed, self.level)
        except Exception:  # a hypothesis that cannot be evaluated must not end a run
            return None


def _add_causes_with_an_example_of_each(verdict: SegmentVerdict, changed: ChangedPrograms, got: Array | None) -> None:
    expected, s = changed.expected, verdict.segment
    want, masks = expected.at(changed.level)[s.output], find_causes(changed, s, got)
    verdict.causes = {cause: int(np.count_nonzero(mask)) for cause, mask in masks.items()}
    if got is None or FORM in masks:
        verdict.failures = [replace(f, cause=FORM) for f in verdict.failures]
        return
    first = {cause: s.start + int(np.flatnonzero(mask)[0]) for cause, mask in masks.items()}
    examples = [make_element_failure(expected, s, want, got, k, cause) for cause, k in first.items()]
    others = [f for f in verdict.failures if f.element not in first.values()]
    causes = {k: cause for cause, mask in masks.items() for k in (s.start + np.flatnonzero(mask)).tolist()}
    verdict.failures = examples + [replace(f, cause=None if f.element is None else causes.get(f.element)) for f in others]


def find_causes(changed: ChangedPrograms, segment: Segment, got: Array | None) -> dict[str, Mask]:
    """Return for each cause which elements of a segment it explains; empty if all are right. Each wrong element has one cause."""
    want = changed.expected.at(changed.level)[segment.output]
    if got is None or describe_shape_dtype_mismatch(want, got):
        return {FORM: np.ones(max(1, segment.stop - segment.start), np.bool_)}
    part = slice(segment.start, segment.stop)
    wrong = ~changed.expected.accepts(segment.output, got, changed.level)[part]
    if not wrong.any():
        return {}
    cause = _find_program_cause(changed, segment, got)
    if cause is not None:
        return {cause.id: wrong}
    return _find_element_causes(want, np.asarray(want.best).reshape(-1)[part], got.reshape(-1)[part], wrong)


def _find_program_cause(changed: ChangedPrograms, segment: Segment, got: Array) -> ProgramCause | None:
    """Return the first cause whose program may give every element of the segment; None for an exact case."""
    if changed.expected.case.is_exact:
        return None
    return next((cause for cause in PROGRAM_CAUSES if _explains_segment(cause, changed, segment, got)), None)


def _explains_segment(cause: ProgramCause, changed: ChangedPrograms, segment: Segment, got: Array) -> bool:
    """Return True if the changed program may give every element of the segment.

    A program that leaves more elements open than the case's own explains nothing. For a cause that mixes, right elements count.
    """
    want, given = changed.expected.at(changed.level)[segment.output], changed.get_output(cause, segment.output)
    part = slice(segment.start, segment.stop)
    if given is None or given.shape != got.shape or given.dtype is not want.dtype:
        return False
    if given.kinds(part).get("any", 0) > want.kinds(part).get("any", 0):
        return False
    if changed.expected.by_bits:
        return bool(np.all((bits_of(got) == bits_of(given.best)).reshape(-1)[part]))
    with np.errstate(all="ignore"):
        if cause.flushes_too and np.all(np.asarray(cause.accepts(want, got)).reshape(-1)[part]):
            return False
        accepted = np.asarray(cause.accepts(given, got)).reshape(-1)[part]
    if cause.mixes:
        accepted = accepted | changed.expected.accepts(segment.output, got, changed.level)[part]
    return bool(np.all(accepted))


def _find_element_causes(want: AllowedSet, best: Array, got: Array, wrong: Mask) -> dict[str, Mask]:
    masks: dict[str, Mask] = {}
    if are_elements_misplaced(best, got):
        return {MISPLACED: wrong}
    rest = wrong  # those without a cause so far
    with np.errstate(all="ignore"):
        for cause in ELEMENT_CAUSES:
            if cause.weak and _are_unwritten(want, got[rest]):
                break
            explained = rest & cause.holds(best, got, want.dtype)
            if explained[rest].all() if cause.weak else explained.any():
                masks[cause.id] = explained
                rest = rest & ~explained
            if not rest.any():
                break
    if rest.any():
        masks[ZEROS if _are_unwritten(want, got[rest]) else UNEXPLAINED] = rest
    return masks


def _are_unwritten(want: AllowedSet, wrong_elements: Array) -> bool:
    """Return True for several elements that are all zero. Bools are left out, as half of their wrong elements are."""
    return want.dtype is not dt.bool_ and len(wrong_elements) >= _LEAST_ZEROS and not np.any(wrong_elements)


def classify_run_without_result(status: str, message: str) -> str:
    """Return the cause of a program that gave no result: its status, or the exception without numbers and addresses."""
    if status in (TIMEOUT, CRASH, TRAP):
        return status
    prefix = REFUSAL if status == "unsupported" or message.startswith(REFUSED) else EXCEPTION
    first, *_ = message.strip().removeprefix(f"{REFUSED}: ").splitlines() or [""]
    without_numbers = re.sub(r"\b(0x[0-9a-fA-F]+|\d+)\b", "N", first)
    return prefix + re.sub(r"\s+", " ", without_numbers)[:160]


def describe_cause(cause: str) -> str:
    """Return the sentence of a cause."""
    return TEXTS.get(cause, cause)
