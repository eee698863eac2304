"""A made-up run with a cell of every status, for tests of reports: no backend, no suite, the same each time."""

from __future__ import annotations

from collections.abc import Callable

import ml_dtypes
import numpy as np
import pytest

from uops.backends.conformance.model import (
    CellResult,
    CellStatus,
    ConformanceCase,
    ConformanceCell,
    ConformanceLevel,
    ConformanceTier,
    Failure,
    Segment,
)
from uops.backends.conformance.runner import ConformanceRun
from uops.spec.ir import build as b
from uops.spec.ir import dtypes as dt
from uops.spec.ir.node import UOp
from uops.spec.ir.ops import Op

MakeRun = Callable[..., ConformanceRun]

IDIV, SIN, MAX, FUNCTION = "Elementwise/Idiv", "Decomposed/Sin", "Elementwise/Max", "Call/Function"
HOSTILE = "crash: </script><script>alert('x')</script> & \x1b[31m\x00"

Verdict = tuple[CellStatus, int, int, float, str | None]
# fmt: off
#: (row, dtype, edge class) -> status, elements, failed, ulp, reason; at both levels alike but for STRICT_ONLY.
CELLS: dict[tuple[str, str, str], Verdict] = {
    (IDIV, "int32", "zero"):        (CellStatus.FAIL, 24, 3, 0.0, None),
    (IDIV, "int32", "ordinary"):    (CellStatus.PASS, 40, 0, 0.0, None),
    (IDIV, "int8", "ordinary"):     (CellStatus.PASS, 40, 0, 0.0, None),
    (SIN, "float32", "limit"):      (CellStatus.XFAIL, 24, 2, 1.0, "no argument reduction [https://example.org/1]"),
    (SIN, "float32", "ordinary"):   (CellStatus.PASS, 40, 0, 1.5, None),
    (MAX, "bfloat16", "nan"):       (CellStatus.FAIL, 8, 8, 0.0, None),
    (MAX, "float64", "nan"):        (CellStatus.NOT_RUN, 0, 0, 0.0, None),
    (FUNCTION, "float32", "nested"): (CellStatus.UNSUPPORTED, 0, 0, 0.0, "one kernel only"),
}
# fmt: on
STRICT_ONLY = (IDIV, "int32", "zero")


def case(row: str, d: dt.DType) -> ConformanceCase:
    """A program of the row's dtype whose inputs NumPy cannot store by itself, if the dtype is one of ml_dtypes'."""
    x, y = b.param(0, (3,), d), b.param(1, (3,), d)
    op = Op.IDIV if d.is_integer else Op.MAX
    kind = ml_dtypes.bfloat16 if d is dt.bfloat16 else d.name
    inputs = {"p0": np.array([1, 2, 3], kind), "p1": np.zeros(3, kind)}
    return ConformanceCase(row, d, "edges", UOp(op, (x, y)), inputs, (Segment("zero", 0, 0, 3),))


def _failures(row: str, dtype: str) -> list[Failure]:
    name = f"{row}/{dtype}/edges"
    if row == MAX:
        return [Failure(name, HOSTILE)]
    return [
        Failure(name, "element 2 of output 0 is outside the allowed set", 0, 2, ("p0 = 3 (0x00000003)",), "-1 (0xffffffff)", "0")
    ]


@pytest.fixture
def make_run() -> MakeRun:
    """`make_run(**statuses)`: the run, with the cells of `change` replaced by other statuses, or left out where it is None."""

    def make(
        change: dict[tuple[str, str, str], CellStatus | None] | None = None, seconds: float = 1.25, complete: bool = True
    ) -> ConformanceRun:
        run = ConformanceRun(
            "fake",
            "fake 1.0",
            ConformanceTier.SMOKE,
            "*",
            {level: {} for level in ConformanceLevel},
            cases=5,
            seconds=seconds,
            complete=complete,
        )
        for key, (status, elements, failed, ulp, reason) in CELLS.items():
            now = (change or {}).get(key, status)
            if now is None:
                continue
            for level in ConformanceLevel:
                s = CellStatus.PASS if key == STRICT_ONLY and level is ConformanceLevel.CORE else now
                bad = s in (CellStatus.FAIL, CellStatus.XFAIL)
                found = CellResult(ConformanceCell(*key), s, elements, failed if bad else 0, ulp, reason)
                found.failures = _failures(*key[:2]) if bad else []
                found.sets = {"exact": elements - 1, "interval": 1} if elements else {}
                run.cells[level][ConformanceCell(*key)] = found
                if bad:
                    d = dt.DTYPES[key[1]]
                    run.reproducers[f"{key[0]}/{key[1]}/edges"] = case(key[0], d)
        return run

    return make
