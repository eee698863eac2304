"""Nodes are interned: one per (op, sources, arg, tag) at any time, in any thread, for as long as somebody holds it."""

import gc
import random
import threading
import weakref

import pytest

from uops.fuzz.generate.graphs import case
from uops.spec.errors import SpecError
from uops.spec.ir import build as b
from uops.spec.ir import dtypes as dt
from uops.spec.ir import node
from uops.spec.ir.args import CastArg, ConstArg
from uops.spec.ir.node import UOp, toposort
from uops.spec.ir.ops import Op
from uops.spec.verify.verifier import find_broken_claims

X = b.param(0, (4,), dt.float32)


def test_equal_nodes_are_one_object_and_bits_tell_constants_apart() -> None:
    assert UOp(Op.NEG, [X]) is UOp(Op.NEG, (X,)) is b.neg(X)
    assert UOp(Op.NEG, (X,), None, "t") is not b.neg(X)
    assert b.const(0.0) is not b.const(-0.0)
    assert b.const(float("nan")) is b.const(float("nan"))
    assert b.const(True) is not b.const(1)


def test_dtype_and_shape_come_with_a_node_and_an_ill_formed_one_says_why() -> None:
    u = UOp(Op.NEG, (X,), None, "of this test")
    assert u._dtype is u.dtype is dt.float32 and u._shape is u.shape == (4,)
    for bad in (UOp(Op.NEG), UOp(Op.CONST), UOp(Op.ADD, (X, b.param(1, (3,), dt.float32)))):
        assert isinstance(bad, UOp)
        with pytest.raises(SpecError):
            _ = bad.dtype, bad.shape
        with pytest.raises(AttributeError):
            bad.dtype = dt.float32
    assert UOp(Op.ADD, (X, b.param(1, (3,), dt.float32))).dtype is dt.float32


def test_a_node_cannot_be_changed() -> None:
    u = b.neg(X)
    with pytest.raises(AttributeError, match="immutable"):
        u.tag = "other"
    with pytest.raises(AttributeError, match="immutable"):
        del u.src
    assert type(u) is UOp


def test_a_node_that_nobody_holds_is_forgotten() -> None:
    gc.collect()
    u, seen = X, []
    for _ in range(100_000):  # as deep as any graph: dying is no recursion
        u = UOp(Op.NEG, (u,), None, "of this test")
        seen.append(weakref.ref(u))
    assert sum(r() is not None for r in seen) == 100_000
    del u
    assert all(r() is None for r in seen)
    assert all(r() is not None for r in list(node._interned.values()))


def test_threads_that_make_equal_nodes_at_once_get_one() -> None:
    start, differ = threading.Barrier(4), []

    def work(seed: int) -> None:
        rng = random.Random(seed)
        start.wait()
        for _ in range(10_000):  # few numbers: nodes die and are made again all the time
            k = rng.randrange(8)
            first = UOp(Op.ADD, (X, b.const(float(k))))
            if first is not UOp(Op.ADD, (X, b.const(float(k)))):
                differ.append(k)

    threads = [threading.Thread(target=work, args=(k,)) for k in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not differ


@pytest.mark.parametrize("first", range(0, 200, 50))
def test_the_recursive_order_is_the_iterative_one(first: int) -> None:
    for seed in range(first, first + 50):
        root = case(seed, nodes=30).graph
        order = toposort(root)
        assert order == toposort(root, gate=lambda u: True)
        assert len(set(order)) == len(order)
        at = {u: k for k, u in enumerate(order)}
        assert all(at[s] < at[u] for u in order for s in u.src)
        middle = order[len(order) // 2]
        assert toposort(middle, root) == toposort(middle, root, gate=lambda u: True)


def test_the_orders_agree_below_a_stack_of_ill_formed_constants() -> None:
    with_source = UOp(Op.CONST, (X,), ConstArg(7, dt.index))
    for last in (UOp(Op.CONST), UOp(Op.CONST, (), CastArg(dt.index)), with_source):
        for elements in ((last,) * 5, (*map(b.index, range(4)), last)):
            u = UOp(Op.STACK, elements)
            assert u.constants_of_stack is None
            assert toposort(u) == toposort(u, gate=lambda u: True)
            assert find_broken_claims(u)


def test_a_graph_deeper_than_the_stack_has_an_order() -> None:
    u = X
    for _ in range(20_000):
        u = UOp(Op.NEG, (u,))
    order = toposort(u)
    assert len(order) == len(toposort(X)) + 20_000 and order[-1] is u


def test_nodes_of_an_op_are_grouped_in_a_graph_too_deep_for_the_stack(monkeypatch: pytest.MonkeyPatch) -> None:
    effect = b.store(b.at(X, 0), b.const(1.0))
    effect = b.wrap_in_one_end_per_loop(effect, [b.range_(2, k) for k in range(3000)])
    expected = [node.nodes_with_op(effect, op) for op in (Op.END, Op.RANGE, Op.STORE)]
    monkeypatch.setattr(node.traversals, "cache", node.TraversalCache())
    assert [node.nodes_with_op(effect, op) for op in (Op.END, Op.RANGE, Op.STORE)] == expected
    assert len(expected[0]) == 3000
