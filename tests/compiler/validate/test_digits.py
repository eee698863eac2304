"""The iterations that are proposed for an element: quotients are those of the numbers, and the solver decides what they show."""

from dataclasses import replace
from random import Random

import numpy as np
import pytest

from uops.backends.registry import create_backend
from uops.compiler.config import Config
from uops.compiler.pipeline import record_lowering_up_to_plan
from uops.compiler.tensor import Tensor
from uops.compiler.tensor.realize import capture
from uops.compiler.validate import ObligationKind
from uops.compiler.validate import terms as T
from uops.compiler.validate.certificate import generate_distinct_claims_of_kernel
from uops.compiler.validate.decide import build_open_grid_unless_large_or_loaded, decide_by_solver
from uops.compiler.validate.digits import floor_divide_sum
from uops.compiler.validate.reader import read_accesses
from uops.compiler.validate.sites import KernelAccesses
from uops.compiler.validate.terms import LinearSum, Operation, Unknown


def test_a_quotient_is_the_floor_at_every_point():
    random = Random(0)
    for _ in range(300):
        names = [Unknown(f"x{k}", low := random.randint(-3, 3), low + random.randint(0, 5)) for k in range(random.randint(0, 3))]
        steps = [random.choice((1, -1)) * random.choice((1, 2, 3, 4, 6, 12, 24, 48)) for _ in names]
        a, c = LinearSum(random.randint(-60, 60), tuple(zip(names, steps))), random.choice((1, 2, 4, 6, 8, 12, 24))
        at = build_open_grid_unless_large_or_loaded(names)
        assert np.all(T.evaluate_at_points(floor_divide_sum(a, c), at) == T.evaluate_at_points(a, at) // c), (a, c)


def test_a_quotient_of_digits_is_a_sum():
    high, mid, low = Unknown("high", 0, 7), Unknown("mid", 0, 127), Unknown("low", 0, 63)
    a = LinearSum(0, ((high, 8192), (mid, 64), (low, 1)))
    assert floor_divide_sum(a, 8192) == T.as_sum(high)
    assert floor_divide_sum(a, 64) == LinearSum(0, ((high, 128), (mid, 1)))
    assert floor_divide_sum(LinearSum(0, a.terms[1:]), 384) == T.as_sum(Operation("idiv", (T.as_sum(mid), LinearSum(6))))


@pytest.fixture(scope="module")
def attention() -> tuple[KernelAccesses, KernelAccesses]:
    """The joined kernel of attention, before and after: tiles of six rows, of which the last of every 128 has two."""
    q, k, v = (Tensor.from_numpy(np.zeros((8, 512, 64), np.float32)) for _ in range(3))
    graph = capture(q.scaled_dot_product_attention(k, v)).graph
    passed, *_ = record_lowering_up_to_plan(graph, create_backend("llvm").target, Config(reuse=False))
    (before,), (after,) = passed["join"].src, passed["linearize"].src
    return read_accesses(before.src[0]), read_accesses(after.src[0])


def covers(before: KernelAccesses, after: KernelAccesses):
    return [c for c in generate_distinct_claims_of_kernel(before, after) if c.kind is ObligationKind.COVER]


def test_the_solver_alone_decides_what_joined_attention_writes(attention, worker):
    assert len(covers(*attention)) > 1
    for c in covers(*attention):
        assert decide_by_solver(c, worker).is_proved, c.place


def test_an_element_of_a_tile_that_nothing_writes_is_not_proved(attention, worker):
    before, after = attention
    last = max((s for s in after.sites if s.writes and s.memory.op.name == "PARAM"), key=lambda s: s.index.const)
    fewer = replace(after, sites=tuple(s for s in after.sites if s is not last))
    assert not decide_by_solver(covers(before, fewer)[0], worker).is_proved
