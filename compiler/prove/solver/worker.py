"""The process that holds Z3, and the only module that imports it.

Reads one JSON object per line, {"query", "steps", "seconds", "seed", "ask"}, and answers each with {"result", "model", "reason",
"steps", "spent"}: result is "unsat", "sat" or "unknown", model the values of the constants asked for (a real number as "n/d"),
steps what it took of the steps that it was given, spent the seconds of processor time since the answer before. Started by `solver`,
which limits its time and kills it where that does not end it, and ends with the process that started it, even while a query is at
work; its memory is limited here.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from typing import Any

MEMORY = 2 << 30
#: Seconds between two looks at whether somebody waits.
_LOOK = 1.0


def main() -> None:
    threading.Thread(target=_end_with, args=(os.getppid(),), daemon=True).start()
    _limit_memory()
    import z3

    print(json.dumps({"version": z3.get_full_version()}), flush=True)
    before = time.process_time()
    for line in sys.stdin:
        found = _answer(z3, json.loads(line))
        found["spent"], before = (now := time.process_time()) - before, now
        print(json.dumps(found), flush=True)


def _end_with(parent: int) -> None:
    """End when the process that waits for answers is gone: nobody would stop a query of it."""
    while os.getppid() == parent:
        time.sleep(_LOOK)
    os._exit(0)


def _limit_memory() -> None:
    try:
        import resource
    except ImportError:  # elsewhere only the time is limited
        return
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))


def _answer(z3: Any, task: dict[str, Any]) -> dict[str, Any]:
    for name in ("smt.random_seed", "sat.random_seed"):
        z3.set_param(name, task["seed"])
    solver = z3.Solver(ctx=z3.Context())  # what was asked before would change the search
    solver.set(rlimit=task["steps"], timeout=int(task["seconds"] * 1000))
    try:
        solver.from_string(task["query"])
        result = str(solver.check())
    except (z3.Z3Exception, MemoryError) as e:
        return {"result": "unknown", "model": {}, "reason": f"{type(e).__name__}: {e}"[:400], "steps": _count_steps(solver)}
    reason = solver.reason_unknown() if result == "unknown" else ""
    model = _model(z3, solver.model(), task["ask"]) if result == "sat" and task["ask"] else {}
    return {"result": result, "model": model, "reason": reason, "steps": _count_steps(solver)}


def _count_steps(solver: Any) -> int:
    """Count the steps that a solver has taken."""
    found = solver.statistics()
    return int(found.get_key_value("rlimit count")) if "rlimit count" in found.keys() else 0  # noqa: SIM118 - it is no mapping


def _model(z3: Any, model: Any, wanted: list[str]) -> dict[str, bool | int | str]:
    """Values by name; a constant that the query does not hold may be anything, and is left out."""
    found: dict[str, bool | int | str] = {}
    for d in model.decls():
        if d.arity() == 0 and d.name() in wanted:
            value = model[d]
            found[d.name()] = z3.is_true(value) if z3.is_bool(value) else _number(z3, value)
    return found


def _number(z3: Any, value: Any) -> int | str:
    if not z3.is_real(value):
        return int(value.as_long())
    near = value.approx(30) if z3.is_algebraic_value(value) else value
    return f"{near.numerator_as_long()}/{near.denominator_as_long()}"


if __name__ == "__main__":
    main()
