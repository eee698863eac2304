"""Programs on sparse memory: they read beyond 2^31 elements, cost little, and find code that computes positions in 32 bits."""

import multiprocessing
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from uops.backends.testing.sparse import is_sparse, list_nonzero_runs
from uops.compiler.passes.select import index_widths, vectors
from uops.fuzz.generate.kinds import ProgramSample, sample
from uops.fuzz.oracles.oracles import OracleContext, find_first_objection, select_oracles_in_table_order
from uops.fuzz.oracles.subject import Subject
from uops.fuzz.reduce.reproducer import Reproducer, from_packet, read_reproducer, to_packet, write_reproducer
from uops.spec.ir import dtypes as dt
from uops.spec.ir.node import toposort

CASES = 24


@pytest.fixture(scope="module")
def subject() -> Subject:
    return Subject("llvm")


def draw_case(subject: Subject, k: int) -> ProgramSample:
    return sample(54, k, ("sparse",), subject.declared)


def test_memory_is_larger_than_32_bits_address(subject: Subject) -> None:
    assert all(draw_case(subject, k).inputs["p0"].size > 1 << 31 for k in range(CASES))


def test_variables_may_be_as_large_as_the_memory(subject: Subject) -> None:
    graphs = [draw_case(subject, k).graph for k in range(CASES)]
    assert sum(any(u.min_max and u.min_max[1] >= 1 << 31 for u in toposort(g) if u.dtype is dt.index) for g in graphs) > 3


def test_a_backend_that_copies_its_inputs_gets_small_ones() -> None:
    cases = [sample(54, k, ("sparse",)) for k in range(CASES)]
    assert all(1000 < c.inputs["p0"].size < 3000 for c in cases)
    assert Subject("opencl").declared.reads_inputs_in_place is False


def test_the_backend_is_right(subject: Subject) -> None:
    oracles = select_oracles_in_table_order(("reference", "allowed", "scheduled"))
    for k in range(CASES):
        assert find_first_objection(OracleContext(draw_case(subject, k), subject, seed=k), oracles) is None


def _judge_with_narrow_positions(k: int) -> None:
    index_widths.choose_index_dtype = vectors.choose_index_dtype = lambda nodes, kernel: dt.int32  # type: ignore[assignment]
    subject = Subject("llvm")
    context = OracleContext(draw_case(subject, k), subject, seed=k)
    raise SystemExit(3 if find_first_objection(context, select_oracles_in_table_order(("allowed",))) else 0)


def _exit_status_in_a_process(function: Callable[[int], None], k: int) -> int | None:
    process = multiprocessing.get_context("spawn").Process(target=function, args=(k,))
    process.start()
    process.join()
    return process.exitcode


def test_positions_in_32_bits_are_found() -> None:
    """By a wrong value, or by an access that leaves the memory."""
    statuses = [_exit_status_in_a_process(_judge_with_narrow_positions, k) for k in range(6)]
    assert sum(status != 0 for status in statuses) >= 3


def test_files_and_packets_hold_the_runs(subject: Subject, tmp_path: Path) -> None:
    case = next(c for c in (draw_case(subject, k) for k in range(CASES)) if c.inputs["p0"].nbytes < 3 << 30)
    about = {"oracle": "allowed", "seed": 1, "setup": {"backend": "llvm"}}
    write_reproducer(tmp_path / "a.uops", Reproducer(case, about))
    assert (tmp_path / "a.uops").stat().st_size < 20_000
    for again in (read_reproducer(tmp_path / "a.uops").sample, from_packet(*to_packet(case))):
        assert again.graph is case.graph
        assert is_sparse(again.inputs["p0"])
        for name, value in case.inputs.items():
            a, b = np.asarray(value), np.asarray(again.inputs[name])
            assert (a.shape, a.dtype) == (b.shape, b.dtype)
            assert [(n, r.tobytes()) for n, r in list_nonzero_runs(a)] == [(n, r.tobytes()) for n, r in list_nonzero_runs(b)]
