"""Stores of kernels as native text: which are replaced, and that the oracle sees what text does."""

import numpy as np
import pytest

from uops.fuzz.generate.draw import SeededDraw
from uops.fuzz.generate.kinds import ProgramSample
from uops.fuzz.oracles import native_text, oracles
from uops.fuzz.oracles.native_text import replace_stores_of_kernels_by_text
from uops.fuzz.oracles.oracles import OracleContext
from uops.fuzz.oracles.subject import Subject
from uops.spec.ir import build as b
from uops.spec.ir import dtypes as dt
from uops.spec.ir.node import UOp, nodes_with_op
from uops.spec.ir.ops import Op


def prefix_sums(*, gated: bool = False) -> UOp:
    """Return a program that calls a kernel: each element becomes the sum of itself and the one before, in order."""
    p, r = b.param(0, (4,), dt.int32), b.range_(3, 0)
    value = b.add(b.load(b.at(p, r)), b.load(b.at(p, b.add(r, 1))))
    stored = b.store(b.at(p, b.add(r, 1)), value, *((b.lt(r, 2),) if gated else ()))
    memory = b.buffer(4, dt.int32, unique=1)
    return b.after(memory, b.call(b.sink(b.end(stored, r), name="k"), memory, written=(0,)))


def judge(graph: UOp, subject: str = "c") -> OracleContext:
    c = OracleContext(ProgramSample("calls", graph, {"b1": np.arange(4, dtype=np.int32)}), Subject(subject), seed=1)
    fault = oracles.find_first_objection(c, oracles.select_oracles_in_table_order(["native"]))
    assert fault is None or fault[0] == "native"
    c.counts["faults"] = fault is not None
    return c


@pytest.mark.parametrize("language", ["c", "llvm"])
def test_a_plain_store_of_a_kernel_becomes_text(language: str) -> None:
    graph = replace_stores_of_kernels_by_text(prefix_sums(), language, SeededDraw(0))
    assert graph is not None
    (text,) = nodes_with_op(nodes_with_op(graph, Op.CALL)[0].body, Op.CUSTOM)
    assert text.arg.fmt == {"c": "{0} = {1};", "llvm": "store i32 {1}, ptr {0}"}[language]


def test_a_gated_store_and_a_store_outside_of_kernels_stay() -> None:
    memory = b.buffer(4, dt.int32, unique=1)
    outside = b.after(memory, b.store(memory, b.param(0, (4,), dt.int32)))
    for graph in (prefix_sums(gated=True), outside):
        assert replace_stores_of_kernels_by_text(graph, "c", SeededDraw(0)) is None


@pytest.mark.parametrize("subject", ["c", "llvm"])
def test_text_that_stores_the_same_gives_the_same(subject: str) -> None:
    c = judge(prefix_sums(), subject)
    assert c.counts["oracle:native"] == 1 and not c.counts["faults"]


def test_text_that_stores_something_else_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    right = native_text.text_that_stores
    monkeypatch.setattr(native_text, "text_that_stores", lambda d: right(d)._replace(c="{0} = {1} + 1;"))
    assert judge(prefix_sums()).counts["faults"]
