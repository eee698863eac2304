"""The reducer: the smallest sample that still fails the same way.

Takes: a sample, and `fails`, which says whether a sample shows what the first one did. Gives: a sample that fails, on which no
shrink of `uops.fuzz.reduce.shrinks` finds a smaller one that does, or the best found within `most` questions. Every accepted step
lowers `measure`, so that reduction ends; what is asked about is well-formed, and evaluates in the interpreter if the first sample
does: else the interpreter's complaint is what is looked for. With `again`, which asks the same where nothing was asked before, the
last questions are whether the result fails there, and if not, as of something that fails now and then, the smallest of each larger
size on the way to it; the first sample is given where none of `LAST` does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from uops.fuzz.generate.kinds import KINDS, Sample
from uops.fuzz.reduce.reproducer import size
from uops.fuzz.reduce.shrinks import SHRINKS, Shrink, nonzero
from uops.interp import run
from uops.spec.ir import dtypes as dt
from uops.spec.ir.node import toposort
from uops.spec.verify.verifier import verify

Measure = tuple[int, int, int, int, int]
#: Questions, of which each may run a bisection.
MOST = 500
#: Those of them at most that are kept for `again`.
LAST = 8


def reduce(
    sample: Sample, fails: Callable[[Sample], bool], most: int = MOST, again: Callable[[Sample], bool] | None = None,
    before_each: Callable[[], None] = lambda: None,
) -> Sample:  # fmt: skip
    """The smallest sample found. `before_each` is called before each candidate; what it raises ends the reduction."""
    if again is None:
        return _Reduction(sample, fails, most, before_each).run()
    last = min(LAST, most // 2)
    reduction = _Reduction(sample, fails, most - last, before_each)
    reduction.run()
    return next((s for s in [*reversed(reduction.way.values())][:last] if again(s)), sample)


class _Reduction:
    def __init__(self, sample: Sample, fails: Callable[[Sample], bool], most: int, before_each: Callable[[], None]) -> None:
        self.best = sample
        self.before_each = before_each
        self.measure = measure(sample)
        self.way: dict[int, Sample] = {}  # the smallest of each number of nodes, in the order in which they were accepted
        self.fails = fails
        self.left = most
        self.asked: set[object] = set()
        self.evaluates = sound(sample)

    def run(self) -> Sample:
        """Rounds of all shrinks until one changes nothing."""
        before: Measure | None = None
        while before != self.measure and self.left > 0:
            before = self.measure
            for shrink in SHRINKS:
                while self.left > 0 and self._improve(shrink):
                    pass
        return self.best

    def _improve(self, shrink: Shrink) -> bool:
        """Whether a candidate of this shrink was accepted. What `fails` raises is no matter of the shrink."""
        candidates = shrink(self.best)
        while self.left > 0 and (c := _next(candidates)) is not None:
            if self._accept(c):
                return True
        return False

    def _accept(self, c: Sample) -> bool:
        self.before_each()
        try:
            m = measure(c)
        except Exception:
            return False
        if m >= self.measure or not self._new(c) or not sound(c, self.evaluates):
            return False
        self.left -= 1
        if not self.fails(c):
            return False
        self.best, self.measure, self.way[m[0]] = c, m, c
        return True

    def _new(self, c: Sample) -> bool:
        key = (c.graph, c.opts, tuple((k, np.asarray(v).tobytes()) for k, v in sorted(c.inputs.items())))
        if key in self.asked:
            return False
        self.asked.add(key)
        return True


def _next(candidates: Iterator[Sample]) -> Sample | None:
    """The next candidate; none after the last one, and where the shrink built something impossible."""
    try:
        return next(candidates, None)
    except Exception:
        return None


def measure(s: Sample) -> Measure:
    """What is to be small, most important first: nodes, OptOps, elements, dtypes that are not simple, elements that are not 0 and
    bits of them."""
    order = toposort(s.graph)
    elements = sum(int(np.prod([n for n in u.shape if isinstance(n, int)])) for u in order if u.dtype not in (dt.void, dt.index))
    odd = len({u.dtype for u in order} - {dt.void, dt.index, dt.float32, dt.int32, dt.bool_})
    weight = sum(_weight(v) for v in s.inputs.values())
    return size(s), len(s.opts or ""), elements, odd, weight


def _weight(v: object) -> int:
    a = np.asarray(v)
    if a.dtype == object:
        return sum(int(x).bit_length() for x in a.reshape(-1))
    data = np.ascontiguousarray(a).reshape(-1)
    bits = np.unpackbits(data.view(np.uint8))
    return int(np.count_nonzero(nonzero(data))) * 64 + int(bits.sum())


def sound(s: Sample, evaluates: bool = True) -> bool:
    """Whether the sample is well-formed and, with `evaluates`, the interpreter takes it."""
    try:
        verify(s.graph, KINDS[s.kind].dialect)
        if evaluates:
            run(s.graph, s.inputs)
    except Exception:
        return False
    return True
