"""The oracle of the Tensor front end finds wrong methods that are planted, and a finding can be asked again."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from uops.backends.conformance.stage_judge import Fault
from uops.compiler.tensor import Tensor, capture
from uops.compiler.tensor.methods import indexing
from uops.fuzz.campaign.examine import CaseRunner, Setup
from uops.fuzz.generate import kinds
from uops.fuzz.generate.draw import RecordingDraw, SeededDraw
from uops.fuzz.generate.graphs import FuzzCase
from uops.fuzz.generate.kinds import ProgramSample
from uops.fuzz.generate.methods import beside
from uops.fuzz.oracles import oracles
from uops.fuzz.oracles.oracles import OracleContext
from uops.fuzz.oracles.subject import Subject
from uops.fuzz.reduce.reproducer import Reproducer, from_packet, read_reproducer, to_packet, write_reproducer
from uops.spec.errors import SpecIndexError, Unsupported
from uops.spec.ir import build as b
from uops.spec.ir import dtypes as dt

#: Cases within which each planted method is found.
CASES = 2000
Plant = Callable[[pytest.MonkeyPatch], None]


def wrap(name: str, replacement: Callable[..., Any]) -> Plant:
    """Plant `replacement`, which takes the right method before its arguments."""
    right = getattr(Tensor, name)
    return lambda patch: patch.setattr(Tensor, name, lambda *args, **kwargs: replacement(right, *args, **kwargs))


def first_element_off(right: Any, t: Tensor, *args: Any, **kwargs: Any) -> Tensor:
    out = right(t, *args, **kwargs)
    is_first = (Tensor.arange(out.numel()) == 0).reshape(out.shape)
    return is_first.where(out * 1.125, out)


def forget_last(right: Any, t: Tensor, axis: int = 0) -> Tensor:
    out = right(t, axis)
    if not t.ndim or not t.numel():
        return out
    n = t.shape[axis]
    shape = [n if k == axis % t.ndim else 1 for k in range(t.ndim)]
    is_last = (Tensor.arange(n) == n - 1).reshape(shape)
    return is_last.where(out - t.cast(out.dtype), out)


def last_tie(right: Any, t: Tensor, axis: Any = None, keepdim: bool = False) -> Tensor:
    if axis is None:
        return right(t, axis, keepdim)
    return t.shape[axis] - 1 - right(t.flip(axis), axis, keepdim)


def sign_of_dividend(right: Any, a: Tensor, b: Any, reverse: bool = False) -> Tensor:
    rest = right(a, b, reverse)
    if reverse or not rest.dtype.is_signed or not isinstance(b, Tensor):
        return rest
    return (rest.ne(0) & (a < 0).ne(rest < 0)).where(rest - b, rest)


def sum_in_own_dtype(right: Any, t: Tensor, axis: Any = None, keepdim: bool = False) -> Tensor:
    if not t.dtype.is_float:
        return right(t, axis, keepdim)
    axes = t._normalize_axes("mean", axis)
    return t._reduce(oracles.Op.ADD, axes, keepdim) / float(math.prod(t.shape[k] for k in axes))


def round_half_up(right: Any, t: Tensor) -> Tensor:
    even = right(t)
    return (t - even).eq(0.5).where(even + 1, even) if t.dtype.is_float else even


def flip_kernel(right: Any, x: Tensor, w: Tensor, *args: Any, **kwargs: Any) -> Tensor:
    return right(x, w.flip(*range(2, w.ndim)) if w.ndim > 2 else w, *args, **kwargs)


def join_backwards(right: Any, *tensors: Any, **kwargs: Any) -> Tensor:
    listed = tensors[0] if isinstance(tensors[0], (tuple, list)) else tensors
    return right(*reversed(listed), **kwargs)


def gather_at_zero(right: Any, t: Tensor, dim: int, index: Tensor, unchecked: bool = False) -> Tensor:
    return right(t, dim, index, True)


def wrap_axis(right: Any, t: Tensor, axis: Any = None, *args: Any, **kwargs: Any) -> Tensor:
    return right(t, axis % max(1, t.ndim) if isinstance(axis, int) else axis, *args, **kwargs)


#: What is wrong -> the plant.
PLANTS: dict[str, Plant] = {
    "positions of gather in int16": lambda patch: patch.setattr(indexing, "position_dtype", lambda n: dt.int16),
    "one element of var": wrap("var", first_element_off),
    "cumsum without the last element": wrap("cumsum", forget_last),
    "padding with zero": wrap("pad", lambda right, t, padding, value=0: right(t, padding)),
    "the last of equal elements in argmax": wrap("argmax", last_tie),
    "the sign of mod": wrap("mod", sign_of_dividend),
    "half rounded up": wrap("round", round_half_up),
    "mean in the narrow dtype": wrap("mean", sum_in_own_dtype),
    "cat in the wrong order": wrap("cat", join_backwards),
    "convolution with a flipped kernel": wrap("conv2d", flip_kernel),
    "gather without checks": wrap("gather", gather_at_zero),
    "an axis that wraps": wrap("sum", wrap_axis),
}


def find(sample: ProgramSample) -> tuple[str, Any] | None:
    judges = oracles.select_oracles_in_table_order([oracles.NUMPY])
    return oracles.find_first_objection(OracleContext(sample, Subject("interp")), judges)


@pytest.mark.parametrize("name", PLANTS)
def test_planted_methods_are_found(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    PLANTS[name](monkeypatch)
    assert any(find(kinds.sample(0, k, ("methods",))) for k in range(CASES))


def first_finding(patch: pytest.MonkeyPatch, name: str) -> tuple[ProgramSample, Any]:
    PLANTS[name](patch)
    samples = (kinds.sample(0, k, ("methods",)) for k in range(CASES))
    return next((s, f[1]) for s in samples if (f := find(s)))


def test_a_finding_names_the_call(monkeypatch: pytest.MonkeyPatch) -> None:
    _, fault = first_finding(monkeypatch, "convolution with a flipped kernel")
    assert fault.message.startswith("Tensor.conv2d(")
    assert " of " in fault.message
    assert ": element (" in fault.message


def test_a_finding_is_asked_again_from_its_file_until_it_is_mended(tmp_path: Path) -> None:
    path = tmp_path / "x.uops"
    with pytest.MonkeyPatch.context() as patch:
        sample, fault = first_finding(patch, "half rounded up")
        about = {"oracle": oracles.NUMPY, "seed": 0, "setup": {"backend": "interp"}}
        write_reproducer(path, Reproducer(sample, about))
        again = read_reproducer(path).sample
        assert again.graph is sample.graph
        assert find(again) == (oracles.NUMPY, fault)
    assert find(read_reproducer(path).sample) is None


def test_a_wrong_call_beside_a_case_becomes_a_case_of_its_own(tmp_path: Path) -> None:
    runner = CaseRunner(Setup("interp", 3, ("methods",), ("beside", "allowed")))
    path = tmp_path / "x.uops"
    with pytest.MonkeyPatch.context() as patch:
        PLANTS["half rounded up"](patch)
        k = next(k for k in range(CASES) if runner.generate_and_judge_case(k).oracle == "beside")
        sample, oracle = runner.freeze_oracle_choices(runner.draw_sample(k), runner.case_seed(k), "beside")
        assert oracle == oracles.NUMPY
        write_reproducer(path, Reproducer(sample, {"oracle": oracle, "seed": 0, "setup": {"backend": "interp"}}))
        assert find(read_reproducer(path).sample)
    assert find(read_reproducer(path).sample) is None
    assert runner.freeze_oracle_choices(runner.draw_sample(k), runner.case_seed(k), "beside")[1] == "beside"


def test_a_sample_crosses_processes_with_its_choices() -> None:
    sample = next(s for s in (kinds.sample(0, k, ("methods",)) for k in itertools.count()) if s.inputs)
    again = from_packet(*to_packet(sample))
    assert again.graph is sample.graph
    assert again.choices == sample.choices


def test_a_changed_program_is_not_judged_by_the_call() -> None:
    sample = next(s for s in (kinds.sample(0, k, ("methods",)) for k in itertools.count()) if s.inputs)
    other = kinds.sample(0, 0, ("ops",))
    c = OracleContext(sample._replace(graph=other.graph), Subject("interp"))
    assert oracles.find_first_objection(c, oracles.select_oracles_in_table_order([oracles.NUMPY])) is None
    assert not c.counts[f"oracle:{oracles.NUMPY}"]


def test_campaigns_count_the_oracle() -> None:
    runner = CaseRunner(Setup("interp", 3, ("methods",), (oracles.NUMPY, "allowed")))
    outcomes = [runner.generate_and_judge_case(k) for k in range(60)]
    assert not any(o.oracle for o in outcomes)
    assert sum(o.counts[f"oracle:{oracles.NUMPY}"] for o in outcomes) == 60


def test_an_index_out_of_range_is_an_error_of_the_front_end() -> None:
    with pytest.raises(SpecIndexError):
        Tensor([1, 2, 3]).sum(1)


def count_judgements_by_duals(*tensors: Tensor) -> int:
    """Return how many Tensors' gradients the oracle `duals` judges, having found no fault."""
    graph, inputs = capture(*tensors)
    c = OracleContext(ProgramSample("methods", graph, inputs), Subject("interp"))
    assert oracles.find_first_objection(c, oracles.select_oracles_in_table_order(["duals"])) is None
    return c.counts["oracle:duals"]


def test_duals_judge_a_remainder_of_floats_where_it_is_smooth() -> None:
    x = Tensor([1.0, 2.0, 4.0])
    assert count_judgements_by_duals((x + 20.0) % 16.0)  # x is within 3 of 0
    assert not count_judgements_by_duals((x - x) % 2.0)  # 0 at every point


def test_duals_judge_no_large_program() -> None:
    assert count_judgements_by_duals(Tensor([1.0, 2.0]).repeat(20)[::3])
    assert not count_judgements_by_duals(Tensor([1.0, 2.0, 4.0]).repeat(20_000)[::3])


def test_a_call_beside_a_case_for_which_the_interpreter_lacks_memory_is_not_judged(monkeypatch: pytest.MonkeyPatch) -> None:
    kind, asked = "methods", list[int]()
    count, _ = beside._JUDGES[kind]

    def judge(draw: RecordingDraw) -> Any:
        asked.append(len(asked))
        if len(asked) < count:
            raise Unsupported("an EXPAND", "interp")
        return FuzzCase(b.const(1), {}), Fault("value", "wrong")

    monkeypatch.setitem(beside._JUDGES, kind, (count, judge))
    found = beside.find_wrong_draw_beside(kind, SeededDraw(1))
    assert found is not None and found.fault.message == "wrong" and len(asked) == count
