"""The address spaces that Loads and Params of a kernel may name (R179: what Load and Param say of their memory)."""

from __future__ import annotations

from collections.abc import Iterable

from uops.interp.tensor.memory import describe
from uops.spec.errors import SpecError
from uops.spec.ir.args import AddrSpace
from uops.spec.ir.node import UOp
from uops.spec.ir.ops import Op


def reject_non_reg_load_or_non_global_param(nodes: Iterable[UOp]) -> None:
    """Raise SpecError if a Load or Param of a kernel names another address space than it has there.

    A Load fills registers of the lane, a Param is memory of the caller.
    """
    for u in nodes:
        space = AddrSpace.REG if u.op is Op.LOAD else AddrSpace.GLOBAL if u.op is Op.PARAM else None
        if space is not None and u.arg.addrspace is not None and u.arg.addrspace is not space:
            raise SpecError(f"{describe(u)} in a kernel is {space.name}, not {u.arg.addrspace.name} (R179)")
