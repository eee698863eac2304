"""Functions of the host as launches: what they leave in the memory of their Call."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from uops.compiler.native import register_function
from uops.compiler.runtime.host_functions import make_host_function_kernel
from uops.spec.errors import Trap
from uops.spec.ir import build as b
from uops.spec.ir import dtypes as dt
from uops.spec.ir.args import NameArg
from uops.spec.ir.node import UOp
from uops.spec.ir.ops import Op


def _copy_bytes(out: Any, source: Any) -> None:
    out.view(np.uint8)[:] = source


@pytest.mark.parametrize(("name", "encode"), [("EncDec", zlib.compress), ("copy_bytes", bytes)])
def test_r24_a_function_leaves_bool_bytes_of_0_and_1(name: str, encode: Callable[[bytes], bytes]) -> None:
    register_function("copy_bytes", _copy_bytes)
    for data in (b"\0\1", b"\2\1"):
        out, source = np.ones(2, bool), np.frombuffer(encode(data), np.uint8)
        arguments = b.param(0, (2,), dt.bool_), b.param(1, source.shape, dt.uint8)
        kernel = make_host_function_kernel(b.call(UOp(Op.CUSTOM_FUNCTION, (), NameArg(name)), *arguments, written=(0,)), "toy")
        if data[0] < 2:
            kernel([out.ctypes.data, source.ctypes.data], [0, 0])
            assert out.tolist() == [False, True]
        else:
            with pytest.raises(Trap, match=f"CustomFunction {name} gives has a bool byte other than 0 and 1"):
                kernel([out.ctypes.data, source.ctypes.data], [0, 0])
    register_function("copy_bytes", None)
