"""The process that holds Z3, and the only module that imports it.

Takes: one JSON object per line of standard input, {"query", "steps", "seconds", "seed", "ask"}. Gives: one line each, {"result",
"model", "reason", "steps", "spent"}.

- result: "unsat", "sat" or "unknown"
- model: the values of the constants in "ask"; a real number as "n/d"
- steps: steps of the solver that the query took
- spent: seconds of processor time since the answer before

`solver` starts this process, limits its time, and kills it if that does not end it. It exits with its parent, even during a
query. It limits its own memory.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from typing import Any

#: Limit of the process's address space, in bytes.
MEMORY = 2 << 30
#: Seconds between two checks that the parent lives.
_LOOK = 1.0


def main() -> None:
    """Answer queries from standard input until it ends."""
    threading.Thread(target=_exit_when_parent_ends, args=(os.getppid(),), daemon=True).start()
    _limit_memory_if_supported()
    import z3  # late: the memory limit must come first

    print(json.dumps({"version": z3.get_full_version()}), flush=True)
    before = time.process_time()
    for line in sys.stdin:
        answer = _answer_query(z3, json.loads(line))
        answer["spent"], before = (now := time.process_time()) - before, now
        print(json.dumps(answer), flush=True)


def _exit_when_parent_ends(parent_pid: int) -> None:
    """Exit the process once the parent is gone, as nobody else would stop a query."""
    while os.getppid() == parent_pid:
        time.sleep(_LOOK)
    os._exit(0)


def _limit_memory_if_supported() -> None:
    """Limit the address space of this process to MEMORY, or to less where it is limited already, if the system can."""
    try:
        import resource
    except ImportError:  # Windows: only the time is limited
        return
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    limit = MEMORY if hard == resource.RLIM_INFINITY else min(MEMORY, hard)
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))


def _answer_query(z3: Any, task: dict[str, Any]) -> dict[str, Any]:
    """Run one query in a fresh context, and return the answer."""
    for name in ("smt.random_seed", "sat.random_seed"):
        z3.set_param(name, task["seed"])
    solver = z3.Solver(ctx=z3.Context())  # a fresh context: earlier queries would change the search
    solver.set(rlimit=task["steps"], timeout=int(task["seconds"] * 1000))
    try:
        solver.from_string(task["query"])
        result = str(solver.check())
    except (z3.Z3Exception, MemoryError) as e:
        return {"result": "unknown", "model": {}, "reason": f"{type(e).__name__}: {e}"[:400], "steps": _count_steps(solver)}
    reason = solver.reason_unknown() if result == "unknown" else ""
    model = _extract_values_of_occurring_constants(z3, solver.model(), task["ask"]) if result == "sat" and task["ask"] else {}
    return {"result": result, "model": model, "reason": reason, "steps": _count_steps(solver)}


def _count_steps(solver: Any) -> int:
    """Return the number of steps that a solver has taken."""
    statistics = solver.statistics()
    return int(statistics.get_key_value("rlimit count")) if "rlimit count" in statistics.keys() else 0  # noqa: SIM118 - it is no mapping


def _extract_values_of_occurring_constants(z3: Any, model: Any, constants: list[str]) -> dict[str, bool | int | str]:
    """Return the values of `constants` by name. A constant that does not occur in the query may be anything, and is left out."""
    values: dict[str, bool | int | str] = {}
    for d in model.decls():
        if d.arity() == 0 and d.name() in constants:
            value = model[d]
            values[d.name()] = z3.is_true(value) if z3.is_bool(value) else _convert_to_int_or_fraction_text(z3, value)
    return values


def _convert_to_int_or_fraction_text(z3: Any, value: Any) -> int | str:
    """Return a number as an int, or as "n/d" if it is real; an algebraic number is approximated."""
    if not z3.is_real(value):
        return int(value.as_long())
    near = value.approx(30) if z3.is_algebraic_value(value) else value
    return f"{near.numerator_as_long()}/{near.denominator_as_long()}"


if __name__ == "__main__":
    main()
