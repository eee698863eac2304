"""Programs of every dialect as files: each is well-formed there, runs, and gives what it says, whatever the order of lanes.

A file is called `<dialect>-<what>.uops`; its comments are those of `uops.fuzz.reduce.corpus`.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from uops.fuzz.reduce.corpus import FileTest, find_check_failures, load_file_test
from uops.interp import find_executed_ops, opaque, run
from uops.spec.errors import Trap
from uops.spec.ir import dtypes as dt
from uops.spec.ir.node import toposort
from uops.spec.ir.ops import Op
from uops.spec.result import Result
from uops.spec.verify.dialects import DIALECTS, Dialect
from uops.spec.verify.verifier import verify

FILES = sorted(Path(__file__).parent.glob("*.uops"))
#: The second document's ops are executed by `tests/interp/bestiary`, which asserts so itself.
OURS = [d for d in Dialect if d is not Dialect.BESTIARY]
#: Ops that stand for nothing that runs: shapes of Params, which are known before, and what holds a kernel's instructions and text.
STILL = {Dialect.KERNEL: {Op.STACK}, Dialect.SCHEDULED: {Op.STACK}, Dialect.PROGRAM: {Op.PROGRAM, Op.SOURCE}}
#: What the files' instructions, templates and functions of a target mean.
MEANINGS = {
    (Op.INS, "v_add_f32"): lambda x, y: x + y,
    (Op.CUSTOM, "max({0}, {1})"): np.maximum,
    (Op.CUSTOMI, "{0} / 2"): lambda x: x * np.float32(0.5),
    (Op.CUSTOM, "{0} += {1};"): lambda place, x: place.store(place.load() + x),
    (Op.CUSTOM_FUNCTION, "copy"): lambda out, source: source,
}


@pytest.fixture(scope="module", autouse=True)
def meanings() -> Iterator[None]:
    for (kind, name), meaning in MEANINGS.items():
        opaque.register(kind, name, meaning)
    yield
    for kind, name in MEANINGS:
        opaque.register(kind, name, None)


def dialect_of(path: Path) -> Dialect:
    return Dialect(path.stem.split("-")[0])


def faults(test: FileTest, result: Result) -> list[str]:
    return find_check_failures(test, {**dict(enumerate(result.values)), **result.buffers})


def lanes_are_unordered(test: FileTest) -> bool:
    """Whether a schedule could make a difference."""
    return dialect_of(test.path) not in (Dialect.TENSOR, Dialect.CALLIFIED)


@pytest.mark.parametrize("path", FILES, ids=lambda p: p.stem)
def test_a_program_runs_in_its_dialect(path: Path) -> None:
    test = load_file_test(path)
    verify(test.graph, dialect_of(path))
    if test.trap:
        for lanes in (False, True):
            with pytest.raises(Trap):
                run(test.graph, test.inputs, lanes=lanes)
        return
    assert test.checks
    assert faults(test, run(test.graph, test.inputs)) == []
    assert faults(test, run(test.graph, test.inputs, lanes=True)) == []


@pytest.mark.parametrize("path", FILES, ids=lambda p: p.stem)
def test_twenty_schedules_give_the_same(path: Path) -> None:
    test = load_file_test(path)
    if lanes_are_unordered(test) and not test.trap:
        for seed in range(20):
            assert faults(test, run(test.graph, test.inputs, schedule=seed)) == [], f"schedule {seed}"


@pytest.mark.parametrize("path", FILES, ids=lambda p: p.stem)
def test_every_element_that_is_written_is_judged(path: Path) -> None:
    test = load_file_test(path)
    if not test.trap:
        result = run(test.graph, test.inputs)
        sizes = {**{k: v.size for k, v in enumerate(result.values)}, **{k: v.size for k, v in result.buffers.items()}}
        arenas = {f"b{u.src[0].arg.unique}" for u in toposort(test.graph) if u.op is Op.SLICE and u.src[0].op is Op.BUFFER}
        passing = {f"b{u.arg.unique}" for u in toposort(test.graph) if u.op is Op.BUFFER and "launch" in path.stem}
        assert {k for k in sizes if k not in test.checks} <= arenas | passing


def test_every_dialect_has_files() -> None:
    counts = {d: sum(dialect_of(p) is d for p in FILES) for d in OURS}
    assert min(counts.values()) >= 3, counts


@pytest.mark.parametrize("dialect", OURS, ids=lambda d: d.value)
def test_every_op_of_a_dialect_is_executed(dialect: Dialect) -> None:
    """No op answers Unsupported, and none is left out: whatever the dialect admits is in a file of it that runs."""
    tests = [load_file_test(p) for p in FILES if dialect_of(p) is dialect]
    found = {op for t in tests if not t.trap for op in find_executed_ops(t.graph, t.inputs)}
    found |= {u.op for t in tests if not t.trap for u in toposort(t.graph) if u.op in STILL.get(dialect, ())}
    assert DIALECTS[dialect].ops - found == frozenset()


@pytest.mark.parametrize("dialect", OURS, ids=lambda d: d.value)
def test_files_use_what_the_lanes_of_a_dialect_may_do(dialect: Dialect) -> None:
    """Where a dialect has lanes, its files have LOCAL memory that they share and a Barrier between."""
    if Op.BARRIER not in DIALECTS[dialect].ops:
        return
    graphs = [load_file_test(p).graph for p in FILES if dialect_of(p) is dialect]
    spaces = {u.arg.addrspace.name for g in graphs for u in toposort(g) if u.op is Op.BUFFER}
    assert "LOCAL" in spaces
    assert any(u.op is Op.BARRIER for g in graphs for u in toposort(g))


def test_a_wrong_value_is_noticed() -> None:
    test = load_file_test(next(p for p in FILES if p.stem == "kernel-loops"))
    result = run(test.graph, test.inputs)
    changed: dict[str, Any] = {k: v + 1 if v.dtype == dt.int32.name else v for k, v in result.buffers.items()}
    assert faults(test, Result(result.values, changed))
