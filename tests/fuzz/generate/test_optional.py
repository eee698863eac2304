"""Programs with optional functions: most have one, and the rows say what their operands give."""

from collections import Counter
from collections.abc import Iterator

import numpy as np

from uops.backends.contract import Capabilities, Missing
from uops.fuzz.generate.declared import SupportedOpDtypes
from uops.fuzz.generate.kinds import ProgramSample, sample
from uops.interp import run
from uops.spec.ir import build as b
from uops.spec.ir.node import UOp, toposort
from uops.spec.ir.ops import Op
from uops.spec.rows.optional import OPTIONAL, OptionalFunction, find_optional_function, list_nodes_outside_optional_bodies

CASES = [sample(54, k, ("optional",)) for k in range(300)]


def list_calls(graph: UOp) -> Iterator[tuple[OptionalFunction, UOp]]:
    for u in list_nodes_outside_optional_bodies(graph):
        if u.op is Op.FUNCTION and (f := find_optional_function(u)) is not None:
            yield f, u


def evaluate_operands(case: ProgramSample) -> Iterator[tuple[OptionalFunction, list[np.ndarray]]]:
    for f, call in list_calls(case.graph):
        yield f, list(map(np.asarray, run(b.tuple_(*call.arguments), case.inputs).values))


def test_each_function_is_drawn_and_most_programs_have_one() -> None:
    calls = [{f.name for f, _ in list_calls(c.graph)} for c in CASES]
    assert Counter(name for names in calls for name in names).keys() == OPTIONAL.keys()
    assert sum(map(bool, calls)) > 270


def test_the_rows_say_what_the_operands_give() -> None:
    """No integer is divided by 0, quotients of floats are integers that the dtype holds, and vectors have zeros of one sign."""
    seen = Counter[str]()
    for case in CASES:
        for f, operands in evaluate_operands(case):
            if f.is_of_vector:
                (x,) = operands
                assert x.ndim == 1
                assert not (np.signbit(x.astype(np.float64)) & (x == 0)).any()
            elif f.is_partial and operands[0].dtype.kind == "i":
                assert operands[1].all()
            elif f.is_partial:
                assert all((np.abs(v.astype(np.float64)) <= 8).all() for v in operands)
            else:
                continue
            seen[f.name] += 1
    assert seen.keys() == {f.name for f in OPTIONAL.values() if f.is_of_vector or f.is_partial}


def test_a_function_that_is_not_declared_is_not_drawn() -> None:
    declared = SupportedOpDtypes.from_capabilities(Capabilities(unsupported=(Missing("Optional/f*", "*", "no such function"),)))
    drawn = {f.name for k in range(200) for f, _ in list_calls(sample(54, k, ("optional",), declared).graph)}
    assert drawn == {name for name in OPTIONAL if not name.startswith("f")}


def test_without_functions_of_the_language_there_is_none() -> None:
    declared = SupportedOpDtypes.from_capabilities(Capabilities(unsupported=(Missing("Call/Function", "*", "no Functions"),)))
    assert not any(u.op is Op.FUNCTION for k in range(40) for u in toposort(sample(54, k, ("optional",), declared).graph))
