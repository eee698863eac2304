"""Bugs planted behind each pass, in a rule and in machine code, with a program that shows each of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from uops.backends.cache import ObjectCache
from uops.backends.llvm.binding import LlvmTier
from uops.backends.llvm.target import LlvmTarget
from uops.compiler.pipeline import PIPELINE, LoweringState, Pass, run_pass_and_verify
from uops.compiler.rewrite.pattern import ALL_INTS, var
from uops.compiler.rewrite.rule import Rule
from uops.fuzz.reduce.corpus import load_file_test
from uops.spec.ir import build as b
from uops.spec.ir import dtypes as dt
from uops.spec.ir.args import AddrSpace
from uops.spec.ir.axes import AxisType
from uops.spec.ir.node import UOp, substitute, toposort
from uops.spec.ir.ops import Op

F32, I32 = dt.float32, dt.int32
LLVM = LlvmTarget(LlvmTier.FAST, ObjectCache(None))
Inputs = dict[str, Any]
Program = tuple[UOp, Inputs]
Change = Callable[[UOp], UOp]


def p(slot: int, *shape: int, dtype: dt.DType = F32) -> UOp:
    return b.param(slot, shape, dtype)


def floats(*shape: int) -> Any:
    """Multiples of 1/4, whose sums are exact, no two rows alike."""
    n = int(np.prod(shape))
    return (np.arange(n, dtype=np.float32) * 7 % 23 / 4 - 2).reshape(shape)


def ints(*shape: int) -> Any:
    return (np.arange(int(np.prod(shape)), dtype=np.int32) * 37 % 61 - 30).reshape(shape)


# Programs


def transposed() -> Program:
    return b.mul(b.permute(p(0, 3, 4, dtype=I32), (1, 0)), 3), {"p0": ints(3, 4)}


def row_sums() -> Program:
    """Sums of rows that are longer than two vectors of any target and no multiple of one."""
    return b.reduce(b.add(p(0, 4, 72, dtype=I32), 1), Op.ADD, (1,)), {"p0": ints(4, 72)}


def float_sums() -> Program:
    return b.reduce(p(0, 4, 8), Op.ADD, (1,)), {"p0": floats(4, 8)}


def elementwise() -> Program:
    return b.add(p(0, 20, 36), p(1, 20, 36)), {"p0": floats(20, 36), "p1": floats(20, 36)}


def logarithm() -> Program:
    return b.log2(p(0, 6)), {"p0": np.exp2(floats(6) / 2)}


def maxima() -> Program:
    return b.reduce(p(0, 3, 5), Op.MAX, (1,)), {"p0": -1 - abs(floats(3, 5))}


def long() -> Program:
    """More elements than a byte counts."""
    return b.add(p(0, 300, dtype=I32), 1), {"p0": ints(300)}


def several() -> Program:
    """Three kernels: two live intermediates, and what uses both."""
    x = p(0, 4, dtype=I32)
    first, second = b.contiguous(b.mul(x, 5)), b.contiguous(b.add(x, 1))
    return b.add(b.flip(first, (True,)), b.mul(second, b.reduce(b.add(first, second), Op.MAX, (0,)))), {"p0": ints(4)}


def two_values() -> Program:
    x = p(0, 4, dtype=I32)
    return b.tuple_(b.add(x, 1), b.mul(x, 2)), {"p0": ints(4)}


def file_of_a_dialect(stem: str) -> Program:
    """A launch of `tests/dialects`, with its inputs."""
    test = load_file_test(Path(__file__).parents[2] / "dialects" / f"{stem}.uops")
    return test.graph, test.inputs


def lanes_of_a_workgroup() -> Program:
    graph, inputs = file_of_a_dialect("linear-workgroups")
    return graph, {"b1": np.zeros(8, np.int32), **inputs}


def tensor_core() -> Program:
    return file_of_a_dialect("linear-wmma")


def two_registers() -> Program:
    """A kernel written by hand that holds two values of an iteration in registers, and reads both."""
    to, source, i = b.buffer(4, I32, unique=1), b.buffer(4, I32, unique=2), b.range_(4, 0)
    first, second = (b.buffer(1, I32, addrspace=AddrSpace.REG, unique=k) for k in (11, 12))
    x = b.load(b.at(source, i))
    filled = b.group(b.store(b.at(first, 0), b.mul(x, 3)), b.store(b.at(second, 0), x))
    sum_ = b.add(b.load(b.at(b.after(first, filled), 0)), b.load(b.at(b.after(second, filled), 0)))
    return b.sink(b.end(b.store(b.at(to, i), sum_), i), name="k"), {"b1": ints(4), "b2": ints(4)}


# Passes


def behind(name: str, change: Change) -> tuple[Pass, ...]:
    """The pipeline with a change of what pass `name` gives."""

    def run(p: Pass) -> Callable[[UOp, LoweringState], UOp]:
        return lambda u, s: change(run_pass_and_verify(p, u, s))

    return tuple(replace(q, run=run(q), per_kernel=False) if q.name == name else q for q in PIPELINE)


def unscheduled() -> tuple[Pass, ...]:
    """The pipeline without an optimizer, so that all stays scalar."""
    return tuple(replace(q, run=lambda u, s: u) if q.name == "optimize" else q for q in PIPELINE)


def nodes(change: Callable[[UOp], UOp | None]) -> Change:
    """A change of single nodes, everywhere, kernels' bodies included."""

    def rewrite(root: UOp) -> UOp:
        done: dict[UOp, UOp] = {}
        for u in toposort(root):
            new = u.replace(src=tuple(done[s] for s in u.src))
            done[u] = change(new) or new
        return done[root]

    return rewrite


def becomes(op: Op, other: Op, d: dt.DType | None = None) -> Change:
    return nodes(lambda u: UOp(other, u.src) if u.op is op and (d is None or u.dtype is d) else None)


def outputs_swapped(root: UOp) -> UOp:
    """The Buffers of two values take each other's place."""
    first, second = (u for u in root.src if u.op is Op.BUFFER)
    return substitute(root, {first: second, second: first})


def without_first_effect(root: UOp) -> UOp:
    body = root.src[0]
    return root.replace(src=(body.replace(src=body.src[1:]), *root.src[1:]))


def registers_are_one(root: UOp) -> UOp:
    """The registers of a kernel take one place, whenever they are used."""
    found = [u for u in toposort(root) if u.op is Op.BUFFER and u.arg.addrspace is AddrSpace.REG]
    keep = nodes(lambda u: found[0] if u in found else None)(root)

    def without_repeats(u: UOp) -> UOp | None:
        return u.replace(src=tuple(dict.fromkeys(u.src))) if u.op is Op.LINEAR and u.src[0].op is not Op.CALL else None

    return nodes(without_repeats)(keep)


def kernels_swapped(root: UOp) -> UOp:
    return root.replace(src=(*root.src[:-2], root.src[-1], root.src[-2]))


def longer(kind: AxisType, by: int) -> Change:
    """Ranges of one type run so many iterations more, or fewer."""

    def change(u: UOp) -> UOp | None:
        if u.op is not Op.RANGE or u.arg.type is not kind:
            return None
        return u.replace(src=(b.index(int(u.src[0].arg.value) + by),))

    return nodes(change)


def smaller_stride(u: UOp) -> UOp | None:
    """A product of an index value with a factor that is 1 less."""
    if u.op is not Op.MUL or u.dtype is not dt.index or u.src[1].op is not Op.CONST:
        return None
    return UOp(Op.MUL, (u.src[0], b.index(u.src[1].arg.value - 1)))


def last_lane_repeats(u: UOp) -> UOp | None:
    """Stack(0, 1, ..., n-1), the lanes of a vector, with n-2 in the last place."""
    if (
        u.op is not Op.STACK
        or len(u.src) < 4
        or [s.arg.value if s.op is Op.CONST else -1 for s in u.src] != list(range(len(u.src)))
    ):
        return None
    return u.replace(src=(*u.src[:-1], u.src[-2]))


def initialised_inside(root: UOp) -> UOp:
    """The first store of an accumulator, moved behind the Range of the loop that adds to it."""
    return root.replace(src=tuple(c.replace(src=(_moved(c.src[0]), *c.src[1:])) for c in root.src))


def _moved(linear: UOp) -> UOp:
    order = list(linear.src)
    loop = next((u for u in order if u.op is Op.RANGE and u.arg.type is AxisType.REDUCE), None)
    if loop is None:
        return linear
    first = next(u for u in order[: order.index(loop)][::-1] if u.op is Op.STORE)
    order.remove(first)
    order.insert(order.index(loop) + 1, first)
    return linear.replace(src=tuple(order))


def slices_at(offset: int) -> Change:
    """Each Slice but the first begins so many bytes after the arena does."""

    def change(root: UOp) -> UOp:
        later = [u for u in toposort(root) if u.op is Op.SLICE and u.src[1].arg.value]
        return substitute(root, {u: u.replace(src=(u.src[0], b.index(offset))) for u in later})

    return change


class Planted(NamedTuple):
    """`kind` is the fault's, `kernel` what the report calls the kernel, `text` a part of its message."""

    program: Callable[[], Program]
    change: Change
    kind: str = "value"
    kernel: str | None = None
    text: str = ""


# fmt: off
PLANTED: dict[str, tuple[str, Planted]] = {
    "an op is another":             ("callify", Planted(transposed, becomes(Op.MUL, Op.ADD))),
    "outputs are swapped":          ("callify", Planted(two_values, outputs_swapped)),
    "an effect is lost":            ("callify", Planted(two_values, without_first_effect, text="never written")),
    "a stride is wrong":            ("rangeify", Planted(transposed, nodes(smaller_stride), "value", "kernel 0 of 1 (")),
    "a reduction is too short":     ("rangeify", Planted(row_sums, longer(AxisType.REDUCE, -1), "value", "kernel 0 of 1 (")),
    "an output is too short":       ("rangeify", Planted(row_sums, longer(AxisType.LOOP, -1), "value", "kernel 0 of 1 (")),
    "kernels run in another order": ("rangeify", Planted(several, kernels_swapped, "trap", text="never written")),
    "a sum is a product":           ("rangeify", Planted(float_sums, nodes(
        lambda u: u.replace(arg=replace(u.arg, op=Op.MUL)) if u.op is Op.REDUCE else None), "value", "kernel 0 of 1 (")),
    "parts meet another loop":      ("join", Planted(row_sums, longer(AxisType.LOOP, -1), "value", "kernel 0 of 1 (")),
    "a vector is too short":        ("optimize", Planted(elementwise, longer(AxisType.UPCAST, -1), "value", "kernel 0 of 1 (")),
    "an axis is padded unmasked":   ("optimize", Planted(elementwise, longer(AxisType.LOOP, 1), "trap", "kernel 0 of 1 (", "R45")),
    "a lane is another's":          ("expand", Planted(elementwise, nodes(last_lane_repeats), "trap", "kernel 0 of 1 (", "twice")),
    "a float op is another":        ("expand", Planted(elementwise, becomes(Op.ADD, Op.SUB, F32), "value", "kernel 0 of 1 (")),
    "an approximation is off":      ("select", Planted(logarithm, nodes(
        lambda u: b.const(0.25, F32) if u.op is Op.CONST and u.dtype is F32 and .28 < u.arg.value < .29 else None),
        "value", "kernel 0 of 1 (")),
    "a sum forgets its start":      ("linearize", Planted(row_sums, initialised_inside, "value", "kernel 0 of 1 (")),
    "a product forgets its terms":  ("wmma", Planted(tensor_core, longer(AxisType.LOOP, -1), "value", "kernel 0 of 1 (")),
    "a workgroup is left out":      ("workgroups", Planted(lanes_of_a_workgroup, longer(AxisType.GLOBAL, -1), "value")),
    "registers are one":            ("private memory", Planted(two_registers, registers_are_one, "value", "kernel 0 of 1 (")),
    "places are one":               ("plan", Planted(several, slices_at(0), "value", "kernel 2 of 3 (")),
    "places overlap":               ("plan", Planted(several, slices_at(8), "trap", text="(R126)")),
    "a Program has other code":     ("render", Planted(several, nodes(
        lambda u: b.const(4, I32) if u is b.const(5, I32) else None), "value", "kernel 0 of")),
}
# fmt: on


#: It lowers the cost, and is wrong for all but 0.
PLANTED_RULE = Rule("planted", var("x", ALL_INTS) * 3, var("x", ALL_INTS))


class Wrong(LlvmTarget):
    """A renderer that spells one instruction wrong."""

    def __init__(self, right: str, wrong: str) -> None:
        super().__init__(LlvmTier.FAST, ObjectCache(None))
        self.right, self.wrong = right, wrong

    def render(self, linear: UOp) -> str:
        return super().render(linear).replace(self.right, self.wrong)
