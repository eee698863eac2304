"""A kernel whose loop threads share, run with any number of them. Test modules of the targets that have threads import it."""

import ctypes
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from uops.backends.native_entry import sharing
from uops.compiler.runtime.frame import KernelLaunch, ProgramFrame
from uops.spec.ir import build as B
from uops.spec.ir import dtypes as dt
from uops.spec.ir.axes import AxisType
from uops.spec.ir.dtypes import DType
from uops.spec.ir.node import UOp, toposort
from uops.spec.ir.ops import Op

#: Fewest instructions of a piece of a loop in these programs.
PIECE = 8_000


def counting(bound: UOp | int, size: int, inner: int = 1, d: DType = dt.index) -> UOp:
    """p0[i] += 1, `inner` times, for each i of a THREAD loop."""
    extent = B.const(bound, d) if isinstance(bound, int) else bound
    i, j = B.range_(extent, 0, AxisType.THREAD), B.range_(inner, 1)
    place = B.at(B.param(0, (size,), dt.int64), i)
    store = B.store(place, B.add(B.load(B.after(place, j)), 1))
    return UOp(Op.LINEAR, tuple(toposort(B.end(B.end(store, j), i))))


def load(target: Any, kernel: UOp) -> Any:
    return target.load(target.compile(target.render(kernel)))


def share(target: Any, kernel: Any, n: int, work: int, threads: int, patch: pytest.MonkeyPatch) -> Callable[[Any], None]:
    """Runs the kernel on an array, as if it did `work`, with as many threads, cores or not."""
    patch.setattr(sharing, "available_cores", lambda: threads)
    launch = KernelLaunch(kernel, ((0, 0),), (None,), n, work)
    entered = target.enter(ProgramFrame(1, 0, None, (), (), (), (launch,), False, threads, PIECE), lambda: None)
    assert entered is not None
    return lambda array: entered.execute([array.ctypes.data], [])


def check_a_part_does_its_iterations_and_the_kernel_all(kernel: Any) -> None:
    """The kernel counts 10 places."""
    found = np.zeros(10, np.int64)
    address = ctypes.c_uint64(found.ctypes.data)
    part = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)(kernel.part)
    for begin, end in ((0, 3), (3, 4), (4, 4), (7, 10)):
        part(ctypes.addressof(address), None, begin, end)
    assert found.tolist() == [1, 1, 1, 1, 0, 0, 0, 1, 1, 1]
    kernel([found.ctypes.data], [0])
    assert found.tolist() == [2, 2, 2, 2, 1, 1, 1, 2, 2, 2]
