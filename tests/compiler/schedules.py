"""Schedules by hand: kernels whose ranges are split, padded and reordered as OptOps would, and how to run them at every stage."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from uops.backends.arrays import STORAGE
from uops.backends.cache import ObjectCache
from uops.backends.llvm.binding import LlvmTier
from uops.backends.llvm.target import LlvmTarget
from uops.compiler import Config, Target, lower
from uops.compiler.ir.accumulators import reduction_identity
from uops.compiler.passes.expand import expand
from uops.compiler.passes.linearize import linearize
from uops.compiler.passes.select.select import select
from uops.compiler.rewrite.rewriter import Rewriter
from uops.compiler.rewrite.rules import INDEXING
from uops.compiler.target import Kernel
from uops.interp import run
from uops.spec.ir import build as b
from uops.spec.ir.axes import AxisType
from uops.spec.ir.node import UOp, toposort
from uops.spec.ir.ops import Op
from uops.spec.ir.scope import open_ranges
from uops.spec.verify.dialects import Dialect
from uops.spec.verify.verifier import verify

LOOP, REDUCE, UPCAST, UNROLL = AxisType.LOOP, AxisType.REDUCE, AxisType.UPCAST, AxisType.UNROLL
Change = Callable[[UOp], UOp]
Parts = Mapping[UOp, tuple[UOp, tuple[UOp, ...]]]

FAST = LlvmTarget(LlvmTier.FAST, ObjectCache(None))
FULL = LlvmTarget(LlvmTier.FULL, ObjectCache(None))
UNVERIFIED = Config(verify=False, reuse=False)


class DescribedTarget(Target):
    """What a test says of a target. Nothing is rendered, compiled or loaded."""

    def render(self, linear: UOp) -> str:
        raise NotImplementedError

    def compile(self, source: str) -> bytes:
        raise NotImplementedError

    def load(self, binary: bytes) -> Kernel:
        raise NotImplementedError


def scheduled(graph: UOp, *changes: Change) -> UOp:
    """The kernels of `graph`, the last of them changed."""
    root = lower(graph, FAST, "rangeify", UNVERIFIED)
    *before, last = root.src
    body = last.src[0]
    for change in changes:
        body = change(body)
    return root.replace(src=(*before, last.replace(src=(body, *last.src[1:]))))


def ranges(body: UOp) -> list[UOp]:
    """The ranges by axis id: the loops of the output, then the reduced ones."""
    return sorted((u for u in toposort(body) if u.op is Op.RANGE), key=lambda u: int(u.arg.axis_id))


def split(axis: int, factor: int, kind: AxisType, top: bool = False) -> Change:
    """Range number `axis` (by axis id) in two: the part of `factor` gets the type `kind` and the next free id."""

    def change(body: UOp) -> UOp:
        every = ranges(body)
        r, new = every[axis], every[-1].arg.axis_id + 1
        n = r.src[0].arg.value
        assert n % factor == 0
        inner = b.range_(factor, new, kind)
        if n == factor:
            return substituted(body, {r: (inner, (inner,))})
        outer = b.range_(n // factor, r.arg.axis_id, r.arg.type)
        high, low = (inner, outer) if top else (outer, inner)
        whole = b.add(b.mul(high, n // factor if top else factor), low)
        return substituted(body, {r: (whole, (outer, inner))})

    return change


def substituted(body: UOp, parts: Parts) -> UOp:
    """`body` with an expression for each range, and the ranges that are to be closed in its place."""
    done: dict[UOp, UOp] = {}
    for u in toposort(body):
        if u in parts:
            done[u] = parts[u][0]
        elif u.op in (Op.END, Op.REDUCE, Op.AFTER):
            src = [done[u.src[0]]]
            for s in u.src[1:]:
                src += parts[s][1] if s in parts else (done[s],)
            done[u] = u.replace(src=tuple(src))
        else:
            done[u] = u.replace(src=tuple(done[s] for s in u.src))
    return Rewriter(INDEXING)(done[body])


def padded(axis: int, multiple: int) -> Change:
    """Range number `axis` up to a multiple; what is added neither reads nor writes, and reduces the identity (R92)."""

    def change(body: UOp) -> UOp:
        r = ranges(body)[axis]
        n = r.src[0].arg.value
        longer = b.range_(-(-n // multiple) * multiple, r.arg.axis_id, r.arg.type)
        inside, live = b.lt(longer, n), open_ranges(toposort(body))
        done: dict[UOp, UOp] = {}
        for u in toposort(body):
            src = tuple(done[s] for s in u.src)
            if u is r:
                done[u] = longer
            elif u.op is Op.REDUCE and r in u.src:
                done[u] = u.replace(src=(b.where(inside, src[0], reduction_identity(u.arg.op, u.dtype)), *src[1:]))
            elif u.op in (Op.LOAD, Op.STORE) and r in live[u]:
                done[u] = gated(u.replace(src=src), inside)
            else:
                done[u] = u.replace(src=src)
        return done[body]

    return change


def gated(u: UOp, gate: UOp) -> UOp:
    whole = b.and_(u.src[2], gate) if len(u.src) == 3 else gate
    if u.op is Op.STORE:
        return u.replace(src=(u.src[0], u.src[1], whole))
    return u.replace(src=(u.src[0], u.src[1] if len(u.src) == 3 else b.const(0, u.dtype), whole))


def nested(*order: int) -> Change:
    """The loops of the output in this order, outermost first, by number."""

    def change(body: UOp) -> UOp:
        every, inner, closed = ranges(body), body.src[0], list[UOp]()
        while inner.op is Op.END:
            closed += inner.src[1:]
            inner = inner.src[0]
        first = [every[k] for k in order]
        for r in reversed([*first, *(c for c in closed if c not in first)]):
            inner = b.end(inner, r)
        return body.replace(src=(inner,))

    return change


def later_stages(root: UOp, target: Target = FAST) -> dict[str, UOp]:
    """The stages after a SCHEDULED one, each judged against its dialect."""
    found = {"scheduled": root}
    verify(root, Dialect.SCHEDULED)
    found["expanded"] = expand(root)
    verify(found["expanded"], Dialect.EXPANDED)
    found["selected"] = select(found["expanded"], target)
    verify(found["selected"], Dialect.SELECTED)
    found["linear"] = linearize(found["selected"])
    verify(found["linear"], Dialect.LINEAR)
    return found


def execute(linear: UOp, inputs: Mapping[str, Any], target: Target = FAST) -> dict[str, Any]:
    """Run the kernels; gives every buffer by its name."""
    memory = {k: np.array(v) for k, v in inputs.items()}
    for call in linear.src:
        kernel = target.load(target.compile(target.render(call.src[0])))
        for a in call.src[1:]:
            memory.setdefault(name(a), np.zeros(a.shape, NUMPY[a.dtype.name]))
        places = [memory[name(a)] for a in call.src[1:]]
        kernel([p.ctypes.data for p in places], [int(p) if p.ndim == 0 else 0 for p in places])
    return memory


def name(a: UOp) -> str:
    return f"b{a.arg.unique}" if a.op is Op.BUFFER else a.arg.name or f"p{a.arg.slot}"


NUMPY = {d.name: array_dtype for d, array_dtype in STORAGE.items()}


def same_bits(a: Any, c: Any) -> bool:
    """Equal shapes, dtypes and bits, all NaNs alike (R20)."""
    a, c = np.asarray(a), np.asarray(c)
    if a.dtype != c.dtype or a.size != c.size:
        return False
    a, c = a.reshape(-1), c.reshape(-1)
    word = f"u{a.dtype.itemsize}" if a.dtype.kind not in "biu" else a.dtype
    nan = (a != a) & (c != c)
    return bool(np.all((a.view(word) == c.view(word)) | nan))


def agree(root: UOp, inputs: Mapping[str, Any], target: Target = FAST, tiers: tuple[Target, ...] = (FAST, FULL)) -> dict[str, UOp]:
    """Every stage of the interpreter, and every tier of LLVM, gives the same buffers; gives the stages."""
    stages = later_stages(root, target)
    wanted = run(stages["scheduled"], dict(inputs)).buffers
    for stage in ("expanded", "selected", "linear"):
        got = run(stages[stage], dict(inputs)).buffers
        for key, w in wanted.items():
            assert same_bits(view(got[key], w), w), f"{stage}: {key} needs {w}, got {got[key]}"
    for tier in tiers:
        memory = execute(stages["linear"], inputs, tier)
        for key, w in wanted.items():
            assert same_bits(view(memory[key], w), w), f"{tier.version()}: {key} needs {w}, got {memory[key]}"
    return stages


def view(got: Any, wanted: Any) -> Any:
    """A small float's buffer holds the unsigned integers of its bits after selection."""
    got = np.asarray(got)
    return got.view(np.asarray(wanted).dtype) if got.dtype != np.asarray(wanted).dtype else got
