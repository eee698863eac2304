"""What a lowering remembers: shared inside, gone outside, never seen by another thread, and never changed by who reads it."""

import random
import threading

from uops.compiler.log import record_transforms
from uops.compiler.rewrite.lowering_cache import LoweringCache, active_cache, memoize_per_lowering, use_lowering_cache
from uops.compiler.rewrite.pattern import var
from uops.compiler.rewrite.rewriter import Rewriter, weighted_tree_cost
from uops.compiler.rewrite.rule import Rule
from uops.compiler.rewrite.rules import VALUES
from uops.fuzz.generate.graphs import case
from uops.spec.ir import build as b
from uops.spec.ir import dtypes as dt
from uops.spec.ir.node import UOp, nodes_with_op, toposort, traversals
from uops.spec.ir.ops import Op

X = b.param(0, (), dt.int32)


def deep(n: int) -> UOp:
    u = X
    for k in range(n):
        u = UOp(Op.ADD, (u, b.const(k)))
    return u


def test_rewriters_of_the_same_rules_share_normal_forms() -> None:
    calls = []

    def note(found: object) -> dict[str, UOp]:
        calls.append(found)
        return {}

    x = var("x")
    rules = (Rule("add-zero", x + 0, x, witness=note),)
    u = b.add(X, 0)
    with use_lowering_cache(LoweringCache()):
        assert Rewriter(rules)(u) is Rewriter(rules)(u) is X
        assert len(calls) == 1
    assert Rewriter(rules)(u) is X and len(calls) == 2
    with use_lowering_cache(LoweringCache()):
        Rewriter(rules)(u)
    assert len(calls) == 3


def test_other_rules_have_other_normal_forms() -> None:
    u = b.add(X, 0)
    with use_lowering_cache(LoweringCache()):
        assert Rewriter(())(u) is u
        assert Rewriter(VALUES)(u) is X
        assert Rewriter(())(u) is u


def test_who_logs_sees_every_step_whatever_is_remembered() -> None:
    u = b.add(X, 0)
    with use_lowering_cache(LoweringCache()):
        Rewriter(VALUES)(u)
        with record_transforms() as log:
            Rewriter(VALUES)(u)
    assert [s.rule for m in log.transforms for s in m.steps] == ["add-zero"]


def test_an_order_is_the_readers_own() -> None:
    u = deep(20)
    expected = toposort(u)
    with use_lowering_cache(LoweringCache()) as _:
        first = toposort(u)
        first.clear()
        assert toposort(u) == expected
        assert toposort(u, gate=lambda n: n is not u) == [u]
        assert toposort(u, X) == expected
    assert traversals.cache is None


def test_orders_and_nodes_by_op_are_those_without_memory() -> None:
    for k in range(40):
        u = case(0, k).graph
        expected, below = toposort(u), {v: toposort(v) for v in toposort(u)}
        ops = {v.op for v in expected}
        by_op = {op: nodes_with_op(u, op) for op in Op}
        assert all(by_op[op] == [v for v in expected if v.op is op] for op in ops) and not any(
            by_op[op] for op in Op if op not in ops
        )
        with use_lowering_cache(LoweringCache()):
            for v in random.Random(k).sample(expected, len(expected)):  # an order is made of those below that are kept
                assert toposort(v) == below[v]
            assert {op: nodes_with_op(u, op) for op in Op} == by_op
            assert nodes_with_op(u, u.op) is nodes_with_op(u, u.op)


def test_costs_are_those_without_memory() -> None:
    u = UOp(Op.IDIV, (deep(10), UOp(Op.ADD, (b.const(1), X))))
    expected = weighted_tree_cost(u), weighted_tree_cost(u.src[0])
    with use_lowering_cache(LoweringCache()):
        assert (
            (weighted_tree_cost(u), weighted_tree_cost(u.src[0]))
            == expected
            == (weighted_tree_cost(u), weighted_tree_cost(u.src[0]))
        )


def test_memory_is_of_one_thread_and_ends_with_its_block() -> None:
    seen: list[object] = []
    with use_lowering_cache(LoweringCache()) as _:
        outer = active_cache()
        with use_lowering_cache(LoweringCache()):
            assert active_cache() is not outer
        assert active_cache() is outer
        other = threading.Thread(target=lambda: seen.extend((active_cache(), traversals.cache)))
        other.start()
        other.join()
    assert seen == [None, None] and active_cache() is None


def test_nodes_by_op_are_those_of_the_order_whatever_was_asked_before() -> None:
    """Also where they are put together of those of the first source: a Sink of Ends of a Store, and a node that reads it twice."""
    i, j = b.range_(4, 0), b.range_(3, 1)
    store = b.store(b.at(b.param(0, (4,), dt.float32), i), b.load(b.at(b.param(1, (4,), dt.float32), i)))
    body = b.sink(b.end(b.end(store, i), j), name="k")
    for roots in (
        (store, *body.src, body),
        (body, store),
        (store, store.src[1], b.group(store, store), b.after(store, j, i), body),
    ):
        with use_lowering_cache(LoweringCache()):
            for root in roots:
                for op in (Op.RANGE, Op.STORE, Op.END, Op.SINK, Op.LOAD, Op.GROUP, Op.AFTER):
                    assert nodes_with_op(root, op) == [u for u in toposort(root) if u.op is op], (root, op)


def test_the_order_of_vectors_is_that_of_a_walk_from_source_to_source() -> None:
    """What has many sources, some of them the same, some constants, is entered once and in their order."""
    x, y = b.load(b.at(b.param(0, (4,), dt.float32), 0)), b.const(2.0)
    lanes = UOp(Op.STACK, tuple(b.const(float(k % 6)) for k in range(8)))
    root = b.group(UOp(Op.STACK, (x,) * 8), lanes, UOp(Op.STACK, (y, x, y, lanes.src[7], x, y)), UOp(Op.STACK, (y,) * 6))
    order: list[UOp] = []

    def walk(u: UOp) -> None:
        for s in u.src:
            if s not in order:
                walk(s)
        order.append(u)

    walk(root)
    assert toposort(root) == order == toposort(root, gate=lambda u: True)
    assert (
        lanes.constants_of_stack == (0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 0.0, 1.0)
        and UOp(Op.STACK, (y,) * 6).constants_of_stack == (2.0,) * 6
    )
    assert UOp(Op.STACK, (x,) * 8).constants_of_stack is None and b.group(y, y).constants_of_stack is None


def test_a_function_of_a_list_is_computed_once_per_lowering() -> None:
    asked: list[UOp] = []

    @memoize_per_lowering
    def count_instructions(linear: UOp) -> int:
        asked.append(linear)
        return len(linear.src)

    @memoize_per_lowering
    def count_twice(linear: UOp) -> int:
        return 2 * count_instructions(linear)

    linear = UOp(Op.LINEAR, (b.param(0, (4,), dt.int32),))
    assert count_twice(linear) == count_twice(linear) == 2
    assert len(asked) == 2  # without a cache
    cache = LoweringCache()
    with use_lowering_cache(cache):
        assert count_twice(linear) == count_twice(linear) == 2 * count_instructions(linear)
    assert len(asked) == 3
    with use_lowering_cache(LoweringCache()):
        assert count_instructions(linear) == 1
    assert len(asked) == 4
    assert len(cache.of_lists) == 2
