"""Memory of an iteration, identities in a program, and what is memory at all."""

import pytest

from uops.spec.ir import build as b
from uops.spec.ir import dtypes as dt
from uops.spec.ir.args import AddrSpace, RangeArg
from uops.spec.ir.axes import AxisType
from uops.spec.ir.node import UOp, toposort
from uops.spec.ir.ops import Op
from uops.spec.ir.scope import VerifyContext, has_memory_per_iteration
from uops.spec.verify.dialects import Dialect
from uops.spec.verify.infer import infer_tensor_kernel_or_bestiary_dialect, is_kernel_or_custom_function_body


@pytest.mark.parametrize("kind", AxisType)
def test_memory_per_iteration_R128(kind):
    loop = UOp(Op.RANGE, (b.index(4),), RangeArg(0, kind))
    local, reg = (b.buffer(1, dt.int32, addrspace=a, unique=1) for a in (AddrSpace.LOCAL, AddrSpace.REG))
    workgroups = kind in (AxisType.GLOBAL, AxisType.THREAD)
    lanes = kind in (AxisType.LOCAL, AxisType.WARP, AxisType.GROUP_REDUCE)
    assert has_memory_per_iteration(local, loop) is workgroups
    assert has_memory_per_iteration(reg, loop) is (workgroups or lanes)


def _context(root):
    return VerifyContext(root, toposort(root))


def test_two_global_buffers_of_one_identity_clash_across_scopes_R62():
    small, large = b.buffer(4, dt.int32, unique=1), b.buffer(8, dt.int32, unique=1)
    p = b.param(0, (4,), dt.int32)
    body = b.sink(b.store(p, b.shrink(large, (0,), (4,))))
    root = b.sink(b.call(body, small))
    assert len(_context(root).buffer_id_clashes) == 1


def test_a_param_of_index_is_no_memory():
    p = b.param(0, (4,), dt.index)
    assert _context(p).underlying_buffer(p) is None
    assert _context(b.param(0, (4,), dt.int32)).underlying_buffer(b.param(0, (4,), dt.int32)) is not None


def test_customi_alone_is_of_the_second_document():
    from uops.spec.ir.args import CustomArg

    g = UOp(Op.CUSTOMI, (b.const(1, dt.int32),), CustomArg("{0}", dt.int32))
    assert infer_tensor_kernel_or_bestiary_dialect(g) is Dialect.BESTIARY


def test_a_body_with_memory_of_its_own_is_a_kernel():
    p, register = b.param(0, (1,), dt.int32), b.buffer(1, dt.int32, addrspace=AddrSpace.REG, unique=1)
    body = b.sink(b.store(p, b.after(register, b.store(register, b.stack(b.const(3, dt.int32))))))
    assert is_kernel_or_custom_function_body(body)
