"""Races and accesses out of bounds that Oclgrind finds in kernels end as Crash. Skipped, with the reason, where it is absent."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from kernel_claims import linear
from workgroup_kernels import reversal

from uops.backends.opencl.choice import unavailable_reason
from uops.backends.opencl.oclgrind import DiagnosticsLog, split_messages
from uops.backends.opencl.target import OpenClTarget
from uops.backends.worker.client import BackendWorker, Limits, WorkerCase
from uops.spec.errors import Crash
from uops.spec.ir import build as B
from uops.spec.ir import dtypes as dt
from uops.spec.ir.axes import AxisType
from uops.spec.ir.ops import Op

WHY = unavailable_reason("oclgrind")
needs_oclgrind = pytest.mark.skipif(WHY is not None, reason=str(WHY))


def run(text: str, *arrays: object) -> None:
    t = OpenClTarget("oclgrind")
    with t.lend(arrays):
        t.load(t.compile(text))([a.ctypes.data for a in arrays], [0] * len(arrays))


def reversal_text() -> str:
    """p0 in groups of 8, each reversed through LOCAL memory."""
    return OpenClTarget("oclgrind").render(reversal(4, 8))


@needs_oclgrind
def test_a_right_kernel_is_none_of_its_business() -> None:
    x = np.arange(32, dtype=np.int32)
    out = np.zeros_like(x)
    run(reversal_text(), out, x)
    assert out.tolist() == x.reshape(4, 8)[:, ::-1].ravel().tolist()


@needs_oclgrind
def test_a_missing_barrier_is_a_race_at_the_lines_of_both_accesses() -> None:
    text = "\n".join(line for line in reversal_text().splitlines() if "barrier(" not in line)
    with pytest.raises(Crash, match=r"(?s)Oclgrind: .*data race at local memory.*First entity.*Second entity.*r\d\["):
        run(text, np.zeros(32, np.int32), np.zeros(32, np.int32))


@needs_oclgrind
def test_workgroups_that_write_one_element_race() -> None:
    g, out = B.range_(8, 0, AxisType.GLOBAL), B.param(0, (1,), dt.int64)
    text = OpenClTarget("oclgrind").render(linear(B.end(B.store(B.at(out, 0), B.cast(g, dt.int64)), g)))
    with pytest.raises(Crash, match="Write-write data race at global memory"):
        run(text, np.zeros(1, np.int64))


@needs_oclgrind
@pytest.mark.parametrize(("shift", "access"), [(1, "read"), (-1, "read"), (0, "write")])
def test_an_access_out_of_bounds_is_named(shift: int, access: str) -> None:
    g, n = B.range_(8, 0, AxisType.GLOBAL), 8 - (access == "write")
    out, x = B.param(0, (8,), dt.int32), B.param(1, (8,), dt.int32)
    text = OpenClTarget("oclgrind").render(linear(B.end(B.store(B.at(out, g), B.load(B.at(x, B.add(g, B.index(shift))))), g)))
    with pytest.raises(Crash, match=f"Oclgrind: Invalid {access} of size 4 at global memory"):
        run(text, np.zeros(n, np.int32), np.zeros(8, np.int32))


@needs_oclgrind
def test_a_vector_that_ends_behind_its_array_is_named() -> None:
    out, x = B.param(0, (4,), dt.float32), B.param(1, (4,), dt.float32)
    where = B.add(B.stack(*[B.mul(B.range_(1, 0), B.index(4))] * 4), B.stack(*map(B.index, range(4))))
    text = OpenClTarget("oclgrind").render(linear(B.end(B.store(B.at(out, where), B.load(B.at(x, where))), B.range_(1, 0))))
    assert "vload4" in text
    with pytest.raises(Crash, match="Invalid read of size"):
        run(text, np.zeros(4, np.float32), np.zeros(3, np.float32))


@needs_oclgrind
def test_shifts_that_make_a_rotation_run_O02() -> None:
    i, x, out = B.range_(4, 0), B.param(1, (4,), dt.uint64), B.param(0, (4,), dt.uint64)
    v = B.load(B.at(x, i))
    rotated = B.or_(
        B.build_alu_with_promotion(Op.SHL, v, B.const(7, dt.uint64)), B.build_alu_with_promotion(Op.SHR, v, B.const(57, dt.uint64))
    )
    given, got = np.array([1, 1 << 63, 3 << 62, 12345], np.uint64), np.zeros(4, np.uint64)
    run(OpenClTarget("oclgrind").render(linear(B.end(B.store(B.at(out, i), rotated), i))), got, given)
    assert got.tolist() == [(n << 7 | n >> 57) % (1 << 64) for n in given.tolist()]


@needs_oclgrind
def test_a_fault_is_not_blamed_on_the_next_kernel() -> None:
    text = reversal_text()
    with pytest.raises(Crash):
        run("\n".join(line for line in text.splitlines() if "barrier(" not in line), *np.zeros((2, 32), np.int32))
    run(text, *np.zeros((2, 32), np.int32))


BACKEND = """
from uops.backends.contract import Capabilities, CompilerBackend
from uops.backends.opencl.target import OpenClTarget

class Overrun(CompilerBackend):
    name = "overrun"
    def __init__(self):
        target = OpenClTarget("oclgrind")
        right = target.render
        target.render = lambda linear: right(linear).replace("p0[", "p0[1 + ")
        super().__init__(target)
    def version(self):
        return "overrun"
    def capabilities(self):
        return Capabilities()
"""


@needs_oclgrind
def test_a_worker_reports_what_oclgrind_found(tmp_path: Path) -> None:
    (tmp_path / "overrun_oclgrind.py").write_text(BACKEND)
    graph, limits = B.add(B.param(0, (5,), dt.float32), 1.5), Limits(timeout=120.0, start=120.0)
    with BackendWorker("overrun_oclgrind:Overrun", {}, limits, path=[str(tmp_path)]) as w:
        outcome = w.run(WorkerCase(graph, {"p0": np.zeros(5, np.float32)}))
    assert outcome.status != "ok" and "Invalid write of size 4" in str(outcome.message)


LOG = """
Invalid write of size 4 at global memory address 0x1
\tKernel: entry
\t  store i32 %2
\t

Read-write data race at local memory address 0x2
\tKernel: entry
"""


def test_a_log_is_read_once_and_its_first_message_is_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    assert [m.splitlines()[0] for m in split_messages(LOG)] == [
        "Invalid write of size 4 at global memory address 0x1", "Read-write data race at local memory address 0x2"
    ]  # fmt: skip
    for name in ("OCLGRIND_LOG", "OCLGRIND_DATA_RACES", "OCLGRIND_MAX_ERRORS"):
        monkeypatch.setenv(name, "a path of another process")
    log = DiagnosticsLog()
    log.raise_for_new_diagnostics()
    log.path.write_text(LOG)
    with pytest.raises(Crash, match=r"(?s)Invalid write of size 4.*Kernel: entry.*store i32 %2.*and 1 more"):
        log.raise_for_new_diagnostics()
    log.raise_for_new_diagnostics()
