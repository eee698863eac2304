"""How long a scheduled kernel takes on a target: compiled, loaded, and run on memory of its own in this process.

Memory is as large as the kernel's Params say, a symbolic size at its greatest; floats are numbers around 1, integers small, so that
no value is slow by itself. Accesses of a compiled kernel are in bounds or gated (R45), whatever its memory holds.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from uops.compiler.passes.expand import expanded
from uops.compiler.passes.linearize import linearized
from uops.compiler.passes.select.select import selected
from uops.compiler.target import Kernel, Target, lender, load
from uops.spec.ir import dtypes as dt
from uops.spec.ir.dtypes import DType
from uops.spec.ir.node import UOp, toposort
from uops.spec.ir.ops import Op

Array = Any
#: Runs of one kernel: at least two, then until this many or this time. One that is so many times slower than the best ends at once.
RUNS, SECONDS, FAR = 12, 0.02, 2.0
#: Bytes of memory in all, at most.
MOST = 4 << 30
_ALIGNMENT = 64
#: Bits of 1.0 in the floats that NumPy lacks.
_ONE: dict[DType, tuple[str, int]] = {dt.bfloat16: ("uint16", 0x3F80), dt.fp8e4m3: ("uint8", 0x38), dt.fp8e5m2: ("uint8", 0x3C)}


class TargetClock:
    """Seconds of one run, the least of a few. Kernels of one body share their memory."""

    def __init__(self, target: Target, now: Callable[[], float] = time.perf_counter) -> None:
        self.target, self.now = target, now
        self._params: tuple[UOp, ...] = ()
        self._arrays: list[Array] = []
        self._seconds: dict[str, float] = {}

    def __call__(self, body: UOp, best: float) -> float:
        """Raises CompileError or Unsupported where there is no such kernel."""
        source = self._source(body)
        if source not in self._seconds:
            self._seconds[source] = self._timed(self._kernel(source), body, best)
        return self._seconds[source]

    def again(self, body: UOp) -> float:
        """Timed anew."""
        return self._timed(self._kernel(self._source(body)), body, math.inf)

    def _source(self, body: UOp) -> str:
        return self.target.render(linearized(selected(expanded(body), self.target)[-1]))

    def _kernel(self, source: str) -> Kernel:
        return load(self.target, source, self.target.compile(source))

    def _timed(self, kernel: Kernel, body: UOp, best: float) -> float:
        params = tuple(sorted({u for u in toposort(body) if u.op is Op.PARAM}, key=lambda u: int(u.arg.slot)))
        if params != self._params:
            self._arrays = [memory(u) for u in params]
            self._params = params
        slots = 1 + max((int(u.arg.slot) for u in params), default=-1)
        addresses, scalars = [0] * slots, [0] * slots
        for u, a in zip(params, self._arrays):
            if u.arg.name is None:
                addresses[u.arg.slot] = a.ctypes.data
            else:
                scalars[u.arg.slot] = int(a)
        with lender(self.target)([a for a in self._arrays if a.ndim]):
            return self._least(lambda: kernel(addresses, scalars), best)

    def _least(self, run: Callable[[], None], best: float) -> float:
        start = self.now()
        found = self._once(run)
        runs = 1
        while runs < 2 or (runs < RUNS and self.now() - start < SECONDS):
            if found > FAR * best and self.now() - start > SECONDS:
                break
            found, runs = min(found, self._once(run)), runs + 1
        return found

    def _once(self, run: Callable[[], None]) -> float:
        start = self.now()
        run()
        return self.now() - start


def memory(u: UOp) -> Array:
    """What a Param is for timing: an aligned array, or the greatest value of a variable. Raises Unsupported for one too large."""
    if u.arg.name is not None:
        lo, hi = u.arg.bounds or (0, 1 << 10)
        return np.asarray(max(lo, min(hi, 1 << 20)))
    n = math.prod(_extent(d) for d in u.shape)
    values = _values(u.dtype, n)
    room = np.empty(values.nbytes + _ALIGNMENT, np.uint8)
    skip = -room.ctypes.data % _ALIGNMENT
    found = room[skip : skip + values.nbytes].view(values.dtype)
    found[...] = values
    return found


def _extent(d: Any) -> int:
    return d if isinstance(d, int) else int((d.min_max or (0, 1 << 20))[1])


def _values(d: DType, n: int) -> Array:
    if d in _ONE:
        name, bits = _ONE[d]
        return np.full(n, bits, name)
    pattern = np.random.default_rng(0).random(min(n, 4096) or 1) + 0.5
    whole = {"b": pattern > 1, "f": pattern}.get("b" if d is dt.bool_ else "f" if d.is_float else "i", pattern * 2)
    return np.resize(whole.astype("int64" if d is dt.index else d.name), n)
