"""Helpers of the case modules: what a root writes."""

from __future__ import annotations

from uops.backends.conformance.cases.common import collect_buffers_void_root_writes
from uops.backends.conformance.cases.launches import KernelBuilder, copy_element, local_memory, make_launch_case
from uops.spec.ir import build as b
from uops.spec.ir import dtypes as dt
from uops.spec.ir.node import UOp
from uops.spec.ir.ops import Op


def test_local_memory_of_a_kernel_is_no_output() -> None:
    inputs: dict[str, object] = {}
    k = KernelBuilder(inputs)
    source, target, local = k.add_source(dt.float32, 4), k.add_target(dt.float32, 4), local_memory(4, dt.float32)
    zero = b.index(0)
    stored = UOp(Op.AFTER, (local, copy_element(local, zero, source, zero)))
    root = b.sink(k.call(copy_element(target, zero, stored, zero)))
    assert collect_buffers_void_root_writes(root) == []
    case = make_launch_case(Op.BUFFER, dt.float32, "local", root, inputs)
    assert [s.output for s in case.segments] == ["b2"]


def test_memory_of_an_atomic_addition_is_an_output() -> None:
    memory = b.buffer(4, dt.int32, unique=3)
    root = b.sink(UOp(Op.ATOMICADD, (b.at(memory, b.index(1)), b.const(2, dt.int32))))
    assert collect_buffers_void_root_writes(root) == [memory]
