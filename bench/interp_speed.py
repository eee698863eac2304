"""Graphs per second of the reference interpreter, one core, all asserts on.

    python bench/interp_speed.py [--graphs N] [--seed S] [--make MODULE:FUNCTION]

`make(seed) -> (graph, inputs)` gives one graph. Without `--make` a generator of this file is used: 12 live nodes (operands of
shapes not counted), 1 to 1,000 elements, every dtype, every family of the tensor dialect. Graphs are built in batches before the
clock starts and evaluated once: nothing is warm but the interpreter itself. `derivation` is the time that the specification's rules
take for every node's min_max; `again` is a second evaluation of the same graphs.
"""

from __future__ import annotations

import argparse
import importlib
import random
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from uops.interp import run
from uops.interp.elementwise import KERNELS
from uops.interp.storage import NUMPY
from uops.spec import args as A
from uops.spec import build as B
from uops.spec import dtypes as dt
from uops.spec.node import UOp, toposort
from uops.spec.ops import COMPARE, Op

Make = Callable[[int], tuple[UOp, dict[str, Any]]]
NODES = 12
BATCH = 100
_EDGES = [0.0, -0.0, 1.0, -1.0, float("inf"), float("-inf"), float("nan"), 1e-40, 6e4, 3e38]


class Maker:
    """One random graph: grows a pool of nodes of one element count, shapes first."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.noise = np.random.default_rng(seed)
        self.inputs: dict[str, Any] = {}
        sizes = [self.random.choice([1, 2, 3, 4, 5, 7, 8, 10]) for _ in range(self.random.randint(0, 3))]
        self.shape: tuple[int, ...] = tuple(sizes)
        self.pool: list[UOp] = []
        self.leaf()

    def leaf(self) -> UOp:
        d = self.random.choice(dt.STORABLE)
        k = len(self.inputs)
        if self.random.random() < 0.3 and self.shape:
            count = int(np.prod(self.shape))
            buffer = B.buffer(count, d, unique=k + 1)
            self.inputs[f"b{k + 1}"] = self.data(d, (count,))
            self.pool.append(buffer)
            node = B.reshape(buffer, self.shape)
        else:
            node = B.param(k, self.shape, d)
            self.inputs[f"p{k}"] = self.data(d, self.shape)
        self.pool.append(node)
        return node

    def data(self, d: dt.DType, shape: tuple[int, ...]) -> Any:
        if d is dt.bool_:
            return self.noise.integers(0, 2, shape).astype(bool)
        if d.is_float:
            values = np.asarray(self.noise.normal(size=shape) * 10.0 ** self.noise.integers(-3, 4))
            mask = self.noise.random(shape) < 0.2
            values = np.where(mask, self.noise.choice(_EDGES, shape), values)
            with np.errstate(all="ignore"):
                return values.astype(NUMPY[d])
        return self.noise.integers(d.min, d.max, shape, dtype=NUMPY[d], endpoint=True)

    def pick(self, want: Callable[[UOp], bool] = lambda u: True) -> UOp:
        """A recent node of the full shape."""
        good = [u for u in self.pool if u.shape == self.shape and u.dtype in dt.STORABLE and want(u)]
        return self.random.choice(good[-4:]) if good else self.leaf()

    def elementwise(self) -> UOp:
        x = self.pick()
        rows = [op for op, row in KERNELS.items() if x.dtype in row]
        op = self.random.choice(rows)
        if op is Op.WHERE:
            y = self.pick()
            return UOp(op, (x, y, self.like(y.dtype)))
        arity = 3 if op is Op.MULACC else 2 if op in B_BINARY else 1
        return UOp(op, (x, *(self.like(x.dtype) for _ in range(arity - 1))))

    def like(self, d: dt.DType) -> UOp:
        """An operand of dtype `d`: a node, a constant or a cast."""
        good = [u for u in self.pool if u.shape == self.shape and u.dtype is d]
        if good and self.random.random() < 0.6:
            return self.random.choice(good)
        if self.random.random() < 0.5:
            return B.const(self.random.choice([0, 1, 2, 3, 5, 7, 100]), d)
        return UOp(Op.CAST, (self.pick(lambda u: u.dtype is not d),), A.CastArg(d))

    def like_shaped(self, x: UOp) -> UOp:
        good = [u for u in self.pool if u.shape == self.shape and u.dtype is x.dtype]
        return self.random.choice([x, *good])

    def cast(self) -> UOp:
        return UOp(Op.CAST, (self.pick(),), A.CastArg(self.random.choice(dt.STORABLE)))

    def move(self) -> UOp:
        """A movement there and back to the pool's shape, or one that keeps it."""
        x = self.pick()
        rank = len(self.shape)
        kind = self.random.randrange(6)
        if kind == 0 or rank == 0:
            return B.flip(x, [self.random.random() < 0.5 for _ in self.shape])
        if kind == 1:
            after = tuple(self.random.randint(0, 2) for _ in self.shape)
            wide = B.pad(x, after, [n + 2 for n in self.shape])
            self.pool.append(wide)
            return B.shrink(wide, [self.random.randint(0, 2) for _ in self.shape], self.shape)
        if kind == 2:
            order = self.random.sample(range(rank), rank)
            return B.reshape(B.permute(x, order), self.shape)
        if kind == 3:
            rows = B.stack(x, self.like_shaped(x))
            self.pool.append(rows)
            return B.at(rows, self.random.randrange(2))
        if kind == 4:
            axis = self.random.randrange(rank)
            return self.summed(x, axis)
        return UOp(Op.LOAD, (x,), A.LoadArg())

    def summed(self, x: UOp, axis: int) -> UOp:
        total = B.reduce(x, self.random.choice([Op.ADD, Op.MAX, Op.MUL]), (axis,))
        self.pool.append(total)
        return B.expand(total, self.shape)

    def structure(self) -> UOp:
        """A Function of one Param, or a Store into a fresh buffer and its value after it."""
        x = self.pick()
        if self.random.random() < 0.5 or not self.shape:
            inner = B.param(0, self.shape, x.dtype)
            return B.get(B.function(UOp(Op.MAX, (inner, inner)), x), 0)
        count = int(np.prod(self.shape))
        target = B.reshape(B.buffer(count, x.dtype, unique=1000 + len(self.pool)), self.shape)
        return B.after(target, B.store(target, x))

    def graph(self) -> UOp:
        makers = [self.elementwise] * 6 + [self.move] * 4 + [self.cast] * 1 + [self.structure] * 1
        while True:
            before = len(self.pool)
            self.pool.append(self.random.choice(makers)())
            root = B.tuple_(*self.ends())
            if live(root) >= NODES:
                return root
            assert len(self.pool) > before

    def ends(self) -> list[UOp]:
        used = {s for u in self.pool for s in u.src}
        return [u for u in self.pool if u not in used]


B_BINARY = {
    Op.ADD,
    Op.MUL,
    Op.MAX,
    Op.MOD,
    Op.IDIV,
    Op.SUB,
    Op.DIV,
    Op.POW,
    Op.THREEFRY,
    Op.XOR,
    Op.OR,
    Op.AND,
    Op.SHL,
    Op.SHR,
} | COMPARE


def live(root: UOp) -> int:
    """Nodes of a graph without the root Tuple and the operands that only spell shapes."""
    return sum(u.dtype is not dt.index for u in toposort(root)) - 1


def make(seed: int) -> tuple[UOp, dict[str, Any]]:
    maker = Maker(seed)
    return maker.graph(), maker.inputs


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--graphs", type=int, default=4000)
    parser.add_argument("--seed", type=int, default=2024)
    parser.add_argument("--make", default="", help="MODULE:FUNCTION of another generator")
    chosen = parser.parse_args()
    source: Make = make
    if chosen.make:
        module, _, name = chosen.make.partition(":")
        source = getattr(importlib.import_module(module), name)
    report(chosen, source)


def report(chosen: argparse.Namespace, source: Make) -> None:
    for k in range(300):
        run(*source(chosen.seed - 1 - k))
    n, nodes, elements, derived, whole, again = chosen.graphs, 0, 0, 0.0, 0.0, 0.0
    for first in range(chosen.seed, chosen.seed + n, BATCH):
        cases = [source(seed) for seed in range(first, min(first + BATCH, chosen.seed + n))]
        nodes += sum(live(g) for g, _ in cases)
        elements += sum(max((np.size(a) for a in i.values()), default=0) for _, i in cases)
        derived += seconds(lambda cases=cases: [u.min_max for g, _ in cases for u in toposort(g)])
        whole += seconds(lambda cases=cases: [run(g, i) for g, i in cases])
        again += seconds(lambda cases=cases: [run(g, i) for g, i in cases])
    print(
        f"{n} graphs of seed {chosen.seed}: on average {nodes / n:.1f} live nodes, {elements / n:.0f} elements in the largest input"
    )
    print(f"derivation {derived / n * 1e6:.0f} us, evaluation {whole / n * 1e6:.0f} us, again {again / n * 1e6:.0f} us per graph")
    print(f"{n / whole:.0f} graphs/s evaluated, {n / (whole + derived):.0f} graphs/s with the derivation of every node's min_max")


def seconds(work: Callable[[], object]) -> float:
    """Processor time, so that other processes count less."""
    started = time.process_time()
    work()
    return time.process_time() - started


if __name__ == "__main__":
    main()
