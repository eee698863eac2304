"""An If stands around a gated Store that is costly to compute, and holds what the Store alone needs."""

from __future__ import annotations

import numpy as np
import pytest

from uops.backends import registry
from uops.backends.contract import CompilerBackend
from uops.compiler.passes.branches import branch_around_costly_stores
from uops.compiler.passes.linearize import order_instructions
from uops.compiler.pipeline import lower
from uops.interp import run
from uops.spec.ir import build as b
from uops.spec.ir import dtypes as dt
from uops.spec.ir.args import LoadArg
from uops.spec.ir.node import UOp, nodes_with_op
from uops.spec.ir.ops import Op
from uops.spec.verify.dialects import Dialect
from uops.spec.verify.verifier import verify

N = 6
OUT, IN, MASK, OTHER = (b.param(k, (N,), d) for k, d in enumerate((dt.float32, dt.float32, dt.bool_, dt.float32)))
LOOP = b.range_(N, 0)


def load(memory: UOp, at: UOp = LOOP) -> UOp:
    return UOp(Op.LOAD, (b.at(memory, at),), LoadArg())


X, GATE = load(IN), load(MASK)
COSTLY = b.add(b.sqrt(b.sqrt(b.sqrt(b.sqrt(X)))), 1.0)


def list_loop(*effects: UOp) -> tuple[UOp, ...]:
    """The instructions of a loop with effects, in the order in which they are needed."""
    return order_instructions(b.sink(b.end(b.group(*effects), LOOP)))


def ops(instructions: tuple[UOp, ...]) -> list[str]:
    return [u.op.name for u in instructions]


def block(instructions: tuple[UOp, ...]) -> list[UOp]:
    """The instructions between the one If and its Endif."""
    names = ops(instructions)
    return list(instructions[names.index("IF") + 1 : names.index("ENDIF")])


def test_what_a_store_alone_needs_stands_behind_its_gate() -> None:
    store = b.store(b.at(OUT, LOOP), COSTLY, GATE)
    branched = branch_around_costly_stores(list_loop(store))
    inside = block(branched)
    assert inside[-1] is store and {u.op for u in inside} == {Op.INDEX, Op.SQRT, Op.ADD, Op.STORE}
    assert X not in inside and GATE not in inside and b.at(MASK, LOOP) not in inside
    verify(launch_of(branched), Dialect.LINEAR)


def launch_of(instructions: tuple[UOp, ...]) -> UOp:
    buffers = [b.buffer(N, p.dtype, unique=k) for k, p in enumerate((OUT, IN, MASK, OTHER), 1)]
    return UOp(Op.LINEAR, (b.call(UOp(Op.LINEAR, instructions), *buffers, written=(0, 3)),))


def test_values_are_stored_as_before() -> None:
    effects = (b.store(b.at(OUT, LOOP), COSTLY, GATE), b.store(b.at(OTHER, LOOP), b.mul(COSTLY, COSTLY), b.lt(X, 3.0)))
    plain = list_loop(*effects)
    given = {
        "b1": np.full(N, -1, np.float32), "b2": np.array([0, 1, 4, 9, 2, 16], np.float32),
        "b3": np.array([1, 0, 0, 1, 1, 0], np.bool_), "b4": np.full(N, -2, np.float32),
    }  # fmt: skip
    before, after = (run(launch_of(x), given).buffers for x in (plain, branch_around_costly_stores(plain)))
    assert before.keys() == after.keys() and all(np.array_equal(before[k], after[k]) for k in before)


@pytest.mark.parametrize(
    ("why", "effects"),
    [
        ("no gate", (b.store(b.at(OUT, LOOP), COSTLY),)),
        ("a cheap value", (b.store(b.at(OUT, LOOP), b.add(X, 1.0), GATE),)),
        ("a constant gate", (b.store(b.at(OUT, LOOP), COSTLY, b.const(True)),)),
        ("a value that another Store needs", (b.store(b.at(OUT, LOOP), COSTLY, GATE), b.store(b.at(OTHER, LOOP), COSTLY))),
        ("a value that the gate needs", (b.store(b.at(OUT, LOOP), COSTLY, b.lt(COSTLY, 3.0)),)),
    ],
)
def test_other_stores_stay(why: str, effects: tuple[UOp, ...]) -> None:
    plain = list_loop(*effects)
    assert branch_around_costly_stores(plain) == plain, why


def test_a_gate_that_the_value_needs_too_stands_before_the_if() -> None:
    gate = b.lt(X, 3.0)
    store = b.store(b.at(OUT, LOOP), b.add(COSTLY, b.cast(gate, dt.float32)), gate)
    branched = branch_around_costly_stores(list_loop(store))
    assert gate not in block(branched) and store in block(branched)
    verify(launch_of(branched), Dialect.LINEAR)


def test_the_first_of_two_stores_under_one_gate_gets_the_if() -> None:
    """An instruction stands once in a list, and so does an If."""
    other = b.add(b.sqrt(b.sqrt(b.sqrt(b.sqrt(b.add(X, 2.0))))), 1.0)
    first, second = b.store(b.at(OUT, LOOP), COSTLY, GATE), b.store(b.at(OTHER, LOOP), other, GATE)
    branched = branch_around_costly_stores(list_loop(first, second))
    assert ops(branched).count("IF") == 1 and block(branched)[-1] is first
    verify(launch_of(branched), Dialect.LINEAR)


def test_a_store_gets_no_if_whose_gate_has_one_already() -> None:
    """An If of one gate is one node, and stands once (FOUND 146)."""
    opening = UOp(Op.IF, (GATE,))
    store = b.store(b.at(OUT, LOOP), COSTLY, GATE)
    inside = b.store(b.at(OTHER, LOOP), X)
    plain = list_loop(store)
    k = plain.index(LOOP) + 1
    first = [u for u in plain if u in (IN, MASK, OTHER, LOOP)] + [b.at(IN, LOOP), X, b.at(MASK, LOOP), GATE, b.at(OTHER, LOOP)]
    listed = [*dict.fromkeys([*plain[:k], *first]), opening, inside, UOp(Op.ENDIF, (opening,))]
    listed += [u for u in plain if u not in listed]
    assert ops(branch_around_costly_stores(tuple(listed))) == ops(tuple(listed))


def test_what_stands_outside_of_the_loop_stays_there() -> None:
    outside = b.sqrt(b.sqrt(b.sqrt(b.sqrt(b.sqrt(load(IN, b.index(0)))))))
    plain = list_loop(b.store(b.at(OUT, LOOP), b.add(outside, X), GATE))
    assert branch_around_costly_stores(plain) == plain


def test_a_masked_assignment_branches_on_a_scalar_target_and_not_in_vectors() -> None:
    value = b.sin(b.param(0, (64,), dt.float64))
    graph = b.sink(b.store(b.buffer(64, dt.float64, unique=1), value, b.param(1, (64,), dt.bool_)))
    given = {"p0": np.linspace(0, 9, 64), "p1": np.arange(64) % 3 == 0, "b1": np.zeros(64)}
    for name, branches in (("c", True), ("llvm", False)):
        backend = registry.create_backend(name)
        assert isinstance(backend, CompilerBackend)
        assert bool(nodes_with_op(lower(graph, backend.target, "linearize"), Op.IF)) is branches, name
        got = backend.run(graph, given).buffers["b1"]
        assert np.allclose(got, np.where(given["p1"], np.sin(given["p0"]), 0), atol=1e-15)
