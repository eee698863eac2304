"""The gradient of a convolution with a stride is computed in vectors, one phase of the stride after the other."""

from itertools import count
from typing import Any

import numpy as np
import pytest

import uops
from uops import Tensor
from uops.compiler.passes.callify.callify import callify
from uops.compiler.passes.optimize.heuristics.cpu import schedule_for_cpu_vectors
from uops.compiler.passes.optimize.heuristics.phases import split_output_loops_into_phases
from uops.compiler.passes.optimize.schedule.schedule import Schedule, close_output_loops_into_sink, create_initial_schedule
from uops.compiler.passes.rangeify.rangeify import rangeify
from uops.compiler.target import MachineModel
from uops.compiler.tensor.realize import capture
from uops.interp import run
from uops.spec.ir import build as b
from uops.spec.ir import dtypes as dt
from uops.spec.ir.axes import AxisType
from uops.spec.ir.node import UOp, toposort
from uops.spec.ir.ops import DIVISION, Op

WIDE = MachineModel(vector_bytes=64, registers=32, caches=(32 << 10, 1 << 20), fma=True)


def gradient_by_image(side: int, channels: int, stride: int, kernel: int = 3) -> tuple[UOp, dict[str, Any]]:
    """Return the gradient of a padded convolution with a stride by its image, and the values of its inputs."""
    rng = np.random.default_rng(side)
    x, w = (
        Tensor(rng.integers(-4, 5, s).astype(np.float32))
        for s in ((1, channels, side, side), (2 * channels, channels, kernel, kernel))
    )
    y = x.conv2d(w, stride=stride, padding=1)
    (g,) = y.gradient(x, gradient=Tensor(rng.integers(-4, 5, y.shape).astype(np.float32)))
    graph, inputs = capture(g)
    return graph, inputs


def scheduled(graph: UOp) -> Schedule:
    (call,) = rangeify(callify(graph)).src
    s = create_initial_schedule(call.body)
    assert s is not None
    return s


def loops(effect: UOp, kind: AxisType) -> list[int]:
    return sorted(r.bound.arg.value for r in toposort(effect) if r.op is Op.RANGE and r.arg.type is kind)


def test_addresses_advance_by_a_step_per_iteration_of_the_outer_part() -> None:
    before = scheduled(gradient_by_image(16, 32, 2)[0])
    assert any(u.op in DIVISION for u in toposort(before.effect))
    s = split_output_loops_into_phases(before)
    assert [r.bound.arg.value for r in s.outputs] == [32, 8, 2, 8, 2]
    assert not any(u.op in DIVISION for u in toposort(s.effect))


@pytest.mark.parametrize("stride", [1, 3])
def test_loops_without_a_divisor_stay(stride: int) -> None:
    """A stride of 1 divides nothing; one of 3 does not divide 16."""
    s = scheduled(gradient_by_image(16, 32, stride)[0])
    assert split_output_loops_into_phases(s) is s


def test_a_kernel_that_is_no_product_stays() -> None:
    graph = b.reduce(b.reshape(b.flip(b.pad(b.param(0, (6, 9), dt.float32), (0, 1), (6, 12)), (False, True)), (8, 9)), Op.ADD, (1,))
    s = scheduled(graph)
    assert split_output_loops_into_phases(s) is s


def test_lanes_are_iterations_of_the_outer_part() -> None:
    """The Store is contiguous along the phase of the last loop, which is 2: the sums of a vector are stored apart."""
    s = schedule_for_cpu_vectors(scheduled(gradient_by_image(64, 32, 2)[0]), WIDE, count(100))
    body = close_output_loops_into_sink(s)
    assert 2 not in loops(body, AxisType.UPCAST)
    assert any(n % 16 == 0 for n in loops(body, AxisType.UPCAST))


def gradient_of_maxima(side: int) -> tuple[UOp, dict[str, Any]]:
    """Return the gradient of the maxima of windows of 3 x 3, two apart, by the image, and the values of its inputs."""
    rng = np.random.default_rng(side)
    x = Tensor(rng.integers(-4, 5, (1, 3, side, side)).astype(np.float32))
    y = x.max_pool2d(3, stride=2, padding=1)
    (g,) = y.gradient(x, gradient=Tensor(rng.integers(-4, 5, y.shape).astype(np.float32)))
    return capture(g)


def test_lanes_have_all_phases_if_few_rows_reuse_what_they_load() -> None:
    """Each phase of the maxima reads every element of the cotangent, and three rows of windows do."""
    calls = rangeify(callify(gradient_of_maxima(64)[0])).src
    bodies = (c.body for c in calls if any(u.op in DIVISION for u in toposort(c.body)))
    schedules = [schedule_for_cpu_vectors(s, WIDE, count(100)) for s in map(create_initial_schedule, bodies) if s is not None]
    assert [2, 16] in [loops(close_output_loops_into_sink(s), AxisType.UPCAST) for s in schedules]


@pytest.mark.parametrize("side", [16, 33, 40])
def test_gradients_of_maxima_are_those_of_the_interpreter(side: int) -> None:
    graph, inputs = gradient_of_maxima(side)
    (want,) = run(graph, inputs).values
    program = uops.compile(graph, backend="llvm")
    np.testing.assert_array_equal(program.function(*(inputs[key] for key in program.keys)), want)


@pytest.mark.parametrize(
    ("side", "channels", "stride", "kernel"), [(16, 32, 2, 3), (12, 24, 2, 3), (15, 26, 3, 4), (14, 32, 2, 2), (9, 24, 2, 3)]
)
def test_values_are_those_of_the_interpreter(side: int, channels: int, stride: int, kernel: int) -> None:
    graph, inputs = gradient_by_image(side, channels, stride, kernel)
    (want,) = run(graph, inputs).values
    program = uops.compile(graph, backend="llvm")
    np.testing.assert_array_equal(program.function(*(inputs[key] for key in program.keys)), want)
