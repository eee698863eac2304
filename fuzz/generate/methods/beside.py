"""Further calls and sessions beside those of a case, which are interpreted and not compiled.

Takes: a kind of programs and choices. Gives: the first call or session that gives something other than NumPy, with its recorded
choices and its program, so that it becomes a case of its own.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from uops.backends.conformance.stage_judge import Fault
from uops.fuzz.generate.declared import EVERYTHING
from uops.fuzz.generate.draw import RecordingDraw
from uops.fuzz.generate.graphs import FuzzCase
from uops.fuzz.generate.methods.references import build_call, draw_call, find_fault_of_built_call
from uops.fuzz.generate.methods.sessions import find_fault_of_session, generate_session
from uops.spec.choices import ChoiceSource
from uops.spec.errors import Unsupported


class WrongDraw(NamedTuple):
    """A call or session that gives something other than NumPy, its recorded choices, and its program."""

    choices: tuple[int, ...]
    program: FuzzCase
    fault: Fault


def _judge_call(draw: RecordingDraw) -> tuple[FuzzCase, Fault | None]:
    built = build_call(draw_call(draw))
    return FuzzCase(built.graph, built.inputs), find_fault_of_built_call(built)


def _judge_session(draw: RecordingDraw) -> tuple[FuzzCase, Fault | None]:
    program = generate_session(draw, EVERYTHING)
    return program, find_fault_of_session(draw.choices, "interp")


#: Kind of programs -> how often one is drawn beside a case, and how it is judged. A call takes a fiftieth of the time of a case, a
#: session an eighth.
_JUDGES: dict[str, tuple[int, Callable[[RecordingDraw], tuple[FuzzCase, Fault | None]]]] = {
    "methods": (24, _judge_call),
    "sessions": (6, _judge_session),
}


def find_wrong_draw_beside(kind: str, draw: ChoiceSource) -> WrongDraw | None:
    """Draw calls or sessions, as the kind says, and return the first that differs from NumPy, or None.

    One for which the interpreter lacks memory is not judged: it computes positions as prefix sums, of n * n elements.
    """
    count, judge = _JUDGES[kind]
    for _ in range(count):
        recorded = RecordingDraw(draw)
        try:
            program, fault = judge(recorded)
        except Unsupported:
            continue
        if fault is not None:
            return WrongDraw(tuple(recorded.choices), program, fault)
    return None
