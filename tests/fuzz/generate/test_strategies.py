"""Strategies for users' own tests: what fails is printed as a file, and the guide's example runs."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, example, find, given, settings

from uops.backends.answer import collect_caller_input_nodes
from uops.backends.registry import create_backend
from uops.backends.testing.journal import PACKAGE
from uops.cli.commands.fuzz import fuzz
from uops.cli.commands.run import run
from uops.fuzz.generate import kinds
from uops.fuzz.generate.draw import SeededDraw
from uops.fuzz.generate.graphs import generate_tensor_graph
from uops.fuzz.generate.kinds import KINDS, ProgramSample
from uops.fuzz.generate.schedules import list_some_legal_optops, pipeline_with_scheduler, run_passes_up_to
from uops.fuzz.generate.strategies import (
    PrintableCase,
    PrintableSample,
    ScheduledCase,
    cases,
    draw_case,
    optop_sequences,
    samples,
    scheduled_cases,
    smaller,
)
from uops.fuzz.oracles.oracles import ORACLES
from uops.fuzz.reduce import corpus
from uops.fuzz.reduce.reproducer import count_nodes
from uops.spec.extras import install_command
from uops.spec.ir import dtypes as dt
from uops.spec.ir.axes import AxisType
from uops.spec.ir.node import UOp, toposort
from uops.spec.ir.ops import Op
from uops.spec.optops import Axis, Nolocals, OptOp, Split, apply_legal_optop_to_axes, illegality_reason

GUIDE = Path(__file__).parents[3] / "docs" / "fuzzing.md"
QUIET = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.function_scoped_fixture]
DRAWN = settings(max_examples=20, deadline=None, suppress_health_check=QUIET, phases=[Phase.generate])


def same(told: str, graph: UOp, keys: set[str], tmp_path: Path) -> None:
    """The lines after the first are a file with the graph and its inputs."""
    file = tmp_path / "told.uops"
    file.write_text(told.partition("\n")[2])
    found = corpus.load_file_test(file)
    assert found.graph is graph
    assert set(found.inputs) == keys


@DRAWN
@given(cases(max_nodes=6, max_elements=32))
def test_a_case_is_printed_as_a_file(tmp_path: Path, case: PrintableCase) -> None:
    told = repr(case)
    assert told.startswith("Case of\n")
    same(told, case.graph, set(collect_caller_input_nodes(case.graph)) & set(case.inputs), tmp_path)


@DRAWN
@given(scheduled_cases(create_backend("c").target, max_nodes=4, max_elements=32))
def test_a_scheduled_case_applies_its_optops_again(case: ScheduledCase) -> None:
    target, follower = create_backend("c").target, case.scheduler()
    run_passes_up_to(case.graph, target, pipeline_with_scheduler(follower), "optimize")
    assert follower.applied_text == case.opts
    assert "; ".join(f"{kernel}:{o.spell()}" for kernel, o in case.optops) == case.opts
    assert repr(case).startswith("Sample of tensor")


def test_a_scheduled_case_shrinks_to_a_small_graph_and_few_optops() -> None:
    strategy = scheduled_cases(create_backend("c").target, max_optops=3, max_nodes=4, max_elements=16)

    def has_split(case: ScheduledCase) -> bool:
        return any(isinstance(o, Split) for _, o in case.optops)

    small = find(strategy, has_split, settings=settings(max_examples=400, deadline=None, database=None, derandomize=True))
    assert len(small.optops) <= 2
    assert count_nodes(ProgramSample(*small)) <= 5


AXES = (Axis(0, AxisType.LOOP, 8), Axis(1, AxisType.LOOP, 12), Axis(2, AxisType.REDUCE, 9))


@DRAWN
@given(optop_sequences(AXES, max_optops=5))
def test_a_sequence_of_optops_is_legal(optops: list[OptOp]) -> None:
    axes, done = list(AXES), []
    for o in optops:
        assert illegality_reason(o, axes, applied=done) is None
        axes, done = apply_legal_optop_to_axes(o, axes), [*done, o]


def test_a_second_nolocals_is_not_listed() -> None:
    assert Nolocals() in list_some_legal_optops(AXES)
    assert Nolocals() not in list_some_legal_optops(AXES, [Nolocals(), Split(0, 2, AxisType.UPCAST)])


def test_a_sequence_shrinks_to_the_simplest_optop() -> None:
    small = find(optop_sequences(AXES), lambda optops: len(optops) > 0, settings=settings(database=None))
    assert small == list_some_legal_optops(AXES)[:1]


@DRAWN
@given(samples("kernels"))
def test_a_sample_is_printed_as_a_file(tmp_path: Path, sample: PrintableSample) -> None:
    told = repr(sample)
    assert told.startswith("Sample of kernels")
    file = tmp_path / "told.uops"
    file.write_text(told.partition("\n")[2])
    assert corpus.load_file_test(file).graph is sample.graph


def test_a_failing_test_prints_its_program(tmp_path: Path) -> None:
    seen = (
        "from hypothesis import given, settings\nfrom uops.fuzz.generate.strategies import cases\n"
        "@settings(database=None, deadline=None)\n@given(cases(max_nodes=3))\ndef test_it(case):\n    assert case.graph is None\n"
    )
    done = pytested(tmp_path, seen)
    assert done.returncode == 1
    assert re.search(r"case=Case of\n.*%0 = ", done.stdout, re.DOTALL)


@pytest.mark.parametrize("kind", ["ops", "kernels"])
def test_a_case_of_a_campaign_is_one_of_a_test(kind: str) -> None:
    found, again = draw_case(3, 8, (kind,)), kinds.sample(3, 8, (kind,))
    assert (found.kind, found.graph) == (kind, again.graph)
    assert found.inputs.keys() == again.inputs.keys()
    seen: list[UOp] = []

    @settings(max_examples=1, database=None, deadline=None, suppress_health_check=QUIET, phases=[Phase.explicit])
    @example(found)
    @given(samples(kind))
    def test(s: PrintableSample) -> None:
        seen.append(s.graph)

    test()
    assert seen == [again.graph]


def test_what_hypothesis_finds_is_made_smaller(tmp_path: Path) -> None:
    def fails(s: PrintableCase | PrintableSample) -> bool:
        return any(u.op is Op.ADD and u.dtype is dt.int32 for u in toposort(s.graph))

    checks = list(HealthCheck)
    again = settings(database=None, deadline=None, suppress_health_check=checks, max_examples=1000, phases=[Phase.generate])
    found = find(cases(max_nodes=8), fails, settings=settings(again, derandomize=True))
    small = smaller(found, fails)
    assert fails(small)
    assert count_nodes(small) <= 2
    assert repr(small).startswith("Sample of tensor\n")


def test_without_hypothesis_the_extra_is_named() -> None:
    program = "import sys; sys.modules['hypothesis'] = None; import uops.fuzz.generate.strategies"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert f"ImportError: uops.fuzz.generate.strategies needs hypothesis: {install_command('fuzz')}" in done.stderr


def test_dtypes_bound_the_root_and_not_the_graph() -> None:
    roots, inside = set(), set()
    for seed in range(100):
        graph = generate_tensor_graph(SeededDraw(seed), nodes=10, dtypes=(dt.float32, dt.int32)).graph
        roots |= {u.dtype for u in (graph.src if graph.op is Op.TUPLE else (graph,))} - {dt.void}
        inside |= {u.dtype for u in toposort(graph)}
    assert roots == {dt.float32, dt.int32}
    assert dt.int64 in inside


# The guide


@pytest.mark.slow
def test_the_example_of_the_guide_runs(tmp_path: Path) -> None:
    (example,) = re.findall(r"```python\n(.*?)```", GUIDE.read_text(), re.DOTALL)
    done = pytested(tmp_path, example)
    assert done.returncode == 0, done.stdout
    done = pytested(tmp_path, example.replace("return graph", "return graph.src[0]"))
    assert done.returncode == 1


def test_the_guide_names_what_there_is() -> None:
    told = GUIDE.read_text()
    assert "tensor" in KINDS
    assert {"reference", "allowed", "second"} <= set(ORACLES)
    flags = {o for command in (fuzz, run) for p in command.params for o in p.opts}
    assert set(re.findall(r"`(--[a-z-]+)", told)) <= flags
    assert f"({GUIDE.name})" in (GUIDE.parent / "writing-a-backend.md").read_text()
    assert "(docs/fuzzing.md)" in (GUIDE.parents[1] / "README.md").read_text()


def pytested(place: Path, text: str) -> subprocess.CompletedProcess[str]:
    """pytest, on a file with this text."""
    (place / "test_it.py").write_text(text)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir", str(place), str(place / "test_it.py")]
    path = os.pathsep.join([str(PACKAGE.parent), os.environ.get("PYTHONPATH", "")])
    return subprocess.run(command, env={**os.environ, "PYTHONPATH": path}, cwd=place, capture_output=True, text=True, check=False)
