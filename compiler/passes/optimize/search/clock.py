"""Timing of scheduled kernels on a target: compiled, loaded, and run in this process on memory of their own.

Memory has the size that the kernel's Params state, at the maximum of symbolic sizes. Floats are around 1 and integers small, so
that no value is slow by itself. Accesses of a compiled kernel are in bounds or gated (R45: Index), whatever its memory holds.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from uops.compiler.ir.extents import finite_bounds
from uops.compiler.passes.expand import expand_vector_axes_and_split_ends
from uops.compiler.passes.linearize import linearize_kernel
from uops.compiler.passes.select.select import select_instructions
from uops.compiler.target import Kernel, Target, load_or_remake_kernel
from uops.spec.errors import Unsupported
from uops.spec.ir import dtypes as dt
from uops.spec.ir.dtypes import DType
from uops.spec.ir.node import UOp, toposort
from uops.spec.ir.ops import Op

Array = Any
#: Most runs of one kernel, and the seconds after which it is not run a third time or again.
RUNS, SECONDS = 12, 0.02
#: A kernel that is this many times slower than the best, in a run that takes over SECONDS, is not run a second time.
FAR = 2.0
#: Most bytes of a kernel's arguments in all; a larger kernel is not timed.
MOST = 4 << 30
#: Alignment of arrays, in bytes.
_ALIGNMENT = 64


class TargetClock:
    """A clock that takes the fastest of a few runs. Kernels with equal Params share their memory."""

    def __init__(self, target: Target, now: Callable[[], float] = time.perf_counter) -> None:
        self.target, self.now = target, now
        self._params: tuple[UOp, ...] = ()
        self._arrays: list[Array] = []
        self._seconds: dict[str, float] = {}

    def __call__(self, body: UOp, best: float) -> float:
        """Return the seconds of one run; equal sources are timed once. Raises CompileError or Unsupported if there is no such
        kernel."""
        source = self._render_source(body)
        if source not in self._seconds:
            self._seconds[source] = self._time_kernel_on_synthetic_arguments(self._load_kernel(source), body, best)
        return self._seconds[source]

    def again(self, body: UOp) -> float:
        """Return the seconds of one run, timed anew."""
        return self._time_kernel_on_synthetic_arguments(self._load_kernel(self._render_source(body)), body, math.inf)

    def _render_source(self, body: UOp) -> str:
        return self.target.render(
            linearize_kernel(select_instructions(expand_vector_axes_and_split_ends(body), self.target).simplify)
        )

    def _load_kernel(self, source: str) -> Kernel:
        return load_or_remake_kernel(self.target, source, self.target.compile(source))

    def _time_kernel_on_synthetic_arguments(self, kernel: Kernel, body: UOp, best_seconds: float) -> float:
        """Run a kernel on arguments for its Params and return the seconds of the fastest run.

        Raises Unsupported if the arguments are too large.
        """
        params = tuple(sorted({u for u in toposort(body) if u.op is Op.PARAM}, key=lambda u: int(u.arg.slot)))
        if params != self._params:
            _require_arguments_within_timing_limit(params, self.target.name)
            self._arrays = [make_timing_array_or_scalar(u) for u in params]
            self._params = params
        slots = 1 + max((int(u.arg.slot) for u in params), default=-1)
        addresses, scalars = [0] * slots, [0] * slots
        for u, a in zip(params, self._arrays):
            if u.arg.name is None:
                addresses[u.arg.slot] = a.ctypes.data
            else:
                scalars[u.arg.slot] = int(a)
        with self.target.lend([a for a in self._arrays if a.ndim]):
            return self._measure_fastest_run(lambda: kernel(addresses, scalars), best_seconds)

    def _measure_fastest_run(self, run: Callable[[], None], best_seconds: float) -> float:
        """Return the seconds of the fastest of a few runs; only one, if it is long and much slower than `best_seconds`."""
        start = self.now()
        fastest = self._time_once(run)
        runs = 1
        while runs < 2 or (runs < RUNS and self.now() - start < SECONDS):
            if fastest > FAR * best_seconds and self.now() - start > SECONDS:
                break
            fastest, runs = min(fastest, self._time_once(run)), runs + 1
        return fastest

    def _time_once(self, run: Callable[[], None]) -> float:
        start = self.now()
        run()
        self.target.wait()
        return self.now() - start


def _require_arguments_within_timing_limit(params: Sequence[UOp], target_for_message: str) -> None:
    """Raise Unsupported if the arrays for Params have more than MOST bytes in all."""
    size = sum(math.prod(map(_extent, u.shape)) * u.dtype.itemsize for u in params if u.arg.name is None)
    if size > MOST:
        raise Unsupported(f"timing a kernel with more than {MOST:,} bytes of arguments, got {size:,}", target_for_message)


def make_timing_array_or_scalar(param: UOp) -> Array:
    """Return an argument for a Param: an aligned array, or for a variable its maximum, but at most 2**20."""
    if param.arg.name is not None:
        lo, hi = param.arg.bounds or (0, 1 << 10)
        return np.asarray(max(lo, min(hi, 1 << 20)))
    n = math.prod(_extent(d) for d in param.shape)
    values = _make_timing_values(param.dtype, n)
    room = np.empty(values.nbytes + _ALIGNMENT, np.uint8)
    skip = -room.ctypes.data % _ALIGNMENT
    aligned = room[skip : skip + values.nbytes].view(values.dtype)
    aligned[...] = values
    return aligned


def _extent(d: Any) -> int:
    """Return the maximum of an extent."""
    return d if isinstance(d, int) else (finite_bounds(d) or (0, 1 << 20))[1]


def _make_timing_values(d: DType, count: int) -> Array:
    """Return `count` values of dtype `d`: floats around 1, or small integers."""
    if d.ml_dtypes_name:  # the bits of 1.0, as NumPy lacks the dtype
        return np.full(count, d.bias << d.man_bits, d.word.name)
    pattern = np.random.default_rng(0).random(min(count, 4096) or 1) + 0.5
    values = {"b": pattern > 1, "f": pattern}.get("b" if d is dt.bool_ else "f" if d.is_float else "i", pattern * 2)
    return np.resize(values.astype(d.array_name), count)
