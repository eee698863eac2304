"""OptOps change how a kernel is computed, never what: every SCHEDULED form gives, in the interpreter, what the program says."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
from scheduled_programs import PROGRAMS, inputs

from uops.compiler.optimize.schedule import Rejected, Schedule, apply, begin, reason_against, sink
from uops.compiler.passes.callify import callify, outputs
from uops.compiler.passes.rangeify import rangeify
from uops.interp import run
from uops.spec import build as b
from uops.spec.axes import AxisType
from uops.spec.dialects import Dialect
from uops.spec.node import UOp, substitute, toposort
from uops.spec.ops import Op
from uops.spec.optops import TC, Nolocals, OptOp, Padto, Split, Swap
from uops.spec.optops import apply as apply_to_axes
from uops.spec.verify import verify

TYPES = [t for t in AxisType if t is not AxisType.PLACEHOLDER]


def kernels(graph: UOp) -> UOp:
    return rangeify(callify(graph))


def with_schedules(launch: UOp, schedules: list[Schedule]) -> UOp:
    return launch.replace(src=tuple(c.replace(src=(sink(s), *c.src[1:])) for c, s in zip(launch.src, schedules, strict=True)))


def result(graph: UOp, launch: UOp) -> Any:
    (out,) = outputs(graph)
    verify(launch, Dialect.SCHEDULED)
    return run(launch, inputs(graph)).buffers[f"b{out.buffer.arg.unique}"].reshape(out.shape)


def started(graph: UOp) -> tuple[UOp, list[Schedule]]:
    launch = kernels(graph)
    found = [begin(c.src[0]) for c in launch.src]
    assert all(s is not None for s in found)
    return launch, [s for s in found if s is not None]


def any_opt(rng: random.Random, axes: int) -> OptOp:
    i, j = rng.randrange(axes + 1), rng.randrange(axes + 1)
    split = Split(i, rng.choice((1, 2, 3, 4, 5, 8)), rng.choice(TYPES), rng.random() < 0.4)
    return rng.choice((split, split, split, Padto(i, rng.choice((1, 3, 4, 8))), Swap(i, j), Nolocals(), TC(0)))


def random_schedule(s: Schedule, rng: random.Random) -> Schedule:
    for _ in range(rng.randint(1, 6)):
        opt = any_opt(rng, len(s.axes))
        reason = reason_against(s, opt)
        if reason is None:
            expected = tuple(apply_to_axes(opt, s.axes))
            s = apply(s, opt)
            assert s.axes == expected
        else:
            with pytest.raises(Rejected, match=r"R\d\d"):
                apply(s, opt)
    return s


@pytest.mark.parametrize("name", PROGRAMS)
def test_random_opt_ops_keep_the_result(name: str) -> None:
    graph = PROGRAMS[name]()
    launch, plain = started(graph)
    expected = run(graph, inputs(graph)).values[0]
    for seed in range(8):
        rng = random.Random(f"{name} {seed}")
        schedules = [random_schedule(s, rng) for s in plain]
        got = result(graph, with_schedules(launch, schedules))
        np.testing.assert_allclose(got, expected, rtol=2e-6, err_msg=str([s.done for s in schedules]))


def test_padding_a_product_takes_its_identity() -> None:
    graph = PROGRAMS["product"]()
    launch, (s,) = started(graph)
    s = apply(s, Padto(1, 4))
    where = next(u for u in toposort(s.effect) if u.op is Op.WHERE)
    assert where.src[2].arg.value == 1.0
    zeroed = {where: where.replace(src=(*where.src[:2], b.const(0.0)))}
    broken = Schedule(s.name, substitute(s.effect, zeroed), s.outputs, s.done)
    given = {"p0": np.ones((4, 6), np.float32)}
    (out,) = outputs(graph)
    right, wrong = (run(with_schedules(launch, [x]), given).buffers[f"b{out.buffer.arg.unique}"].item() for x in (s, broken))
    assert (right, wrong) == (1.0, 0.0)


def test_kernels_of_another_form_keep_their_loops() -> None:
    body = kernels(PROGRAMS["gemm"]()).src[0].src[0]
    assert begin(body.replace(src=(*body.src, *body.src))) is None
    assert begin(body.src[0]) is None


def test_a_rejected_opt_op_says_the_ruling_and_the_op() -> None:
    _, (s,) = started(PROGRAMS["gemm"]())
    with pytest.raises(Rejected, match=r"Split\(axis=0, factor=5.*does not divide the axis.*R90"):
        apply(s, Split(0, 5, AxisType.UPCAST))
