"""Random 8- and 16-bit expressions: what our rules make of them has the values that they had.

    python bench/random_expressions.py [--count N] [--seed S] [--jobs J] [--journal FILE] [--json FILE]

Expression k of a seed is a pure function of both. Each is built around the left side of a rule (all of them in turn) whose
variables are random expressions and whose constants meet its condition, has 7 ops at least, and up to 3 inputs of int8, uint8,
int16 or uint16; index arithmetic stands between casts. Compared with the expression itself are what the rule makes of it
alone, and its normal form by the default rules, or (every other one) by those with the further rules. Values are those of the
interpreter's own functions, on every input where there are at most 256 (every 64th expression: 65,536), else on 256 drawn with
edges.

A journal holds what chunks of 1000 expressions gave, so that a run goes on where it was stopped. Status 1 if a value differs, a
rule fired fewer than 100 times in a million, or less than 70 % of the expressions changed.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import multiprocessing
import random
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from uops.compiler.prove.counterexample import node
from uops.compiler.prove.typings import Assignment, Typed, assignments
from uops.compiler.rewrite.pattern import Pattern, variables
from uops.compiler.rewrite.rewriter import Rewriter
from uops.compiler.rewrite.rule import Rule, Step
from uops.compiler.rewrite.rules import VALUES
from uops.compiler.rewrite.rules.further import FURTHER
from uops.interp.ops.elementwise import kernel_of
from uops.interp.ops.rounding import CASTS
from uops.interp.tensor.storage import NUMPY, constant
from uops.spec.ir import build as b
from uops.spec.ir import dtypes as dt
from uops.spec.ir.args import CastArg, ConstArg
from uops.spec.ir.dtypes import DType
from uops.spec.ir.node import UOp, toposort
from uops.spec.ir.ops import SHIFT, Op
from uops.spec.ir.text import show

CHUNK, LEAST_OPS, POINTS, FEW, MANY, OFTEN = 1000, 7, 256, 8, 16, 64
FIRED, CHANGED = 100e-6, 0.70
INPUTS = (dt.int8, dt.uint8, dt.int16, dt.uint16)
ALLOWED = frozenset({*INPUTS, dt.bool_, dt.index})
NUMBERS = (0, 1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 16, 100, 127, 128, 255)
_BINARY = (Op.ADD, Op.SUB, Op.MUL, Op.MAX, Op.AND, Op.OR, Op.XOR, Op.IDIV, Op.MOD, Op.SHL, Op.SHR, Op.WHERE, Op.NEG, Op.CAST)
_LOGICAL = (Op.AND, Op.OR, Op.XOR, Op.NOT, Op.CMPLT, Op.CMPLT, Op.CMPGE, Op.CMPNE, Op.CMPEQ, Op.WHERE)
_INDEX = (Op.ADD, Op.ADD, Op.SUB, Op.MUL, Op.IDIV, Op.MOD, Op.MAX, Op.WHERE)


# Expressions


class Draw:
    """Random nodes over three inputs; `index` says whether index arithmetic stands among them. Without it shifts and divisions are
    by constants with which they mean the same to everybody."""

    def __init__(self, rng: random.Random, index: bool = True) -> None:
        self.rng, self.index = rng, index
        self.numbers = (*INPUTS, dt.index) if index else INPUTS
        self.inputs = [b.param(k, (), rng.choice(INPUTS)) for k in range(rng.choice((1, 1, 2, 3)))]
        self.base = rng.choice((2, 3, 4))

    def constant(self, d: DType, low: int = 0) -> UOp:
        value = self.rng.choice(NUMBERS)
        if d is dt.bool_:
            return b.const(value % 2 == 0)
        value = -value if d.is_signed and self.rng.random() < 0.2 else value
        return UOp(Op.CONST, (), ConstArg(value if d is dt.index else b.convert(max(value, low), d), d))

    def leaf(self, d: DType) -> UOp:
        if self.rng.random() < 0.15:
            return self.constant(d)
        u = self.rng.choice(self.inputs)
        if d is dt.bool_:
            return UOp(self.rng.choice((Op.CMPLT, Op.CMPNE, Op.CMPGE)), (u, self.constant(u.dtype)))
        return u if u.dtype is d else UOp(Op.CAST, (u,), CastArg(d))

    def value(self, d: DType, depth: int) -> UOp:
        if depth == 0 or self.rng.random() < 0.2:
            return self.leaf(d)
        op = self.rng.choice(_LOGICAL if d is dt.bool_ else _INDEX if d is dt.index else _BINARY)
        return self.made(op, d, depth - 1)

    def made(self, op: Op, d: DType, depth: int) -> UOp:
        if op is Op.WHERE:
            return UOp(op, (self.value(dt.bool_, depth), self.value(d, depth), self.value(d, depth)))
        if op is Op.CAST:
            other = self.rng.choice((*INPUTS, dt.bool_, dt.index) if self.index else (*INPUTS, dt.bool_))
            return UOp(op, (self.value(other, depth),), CastArg(d)) if other is not d else self.value(d, depth)
        if op in (Op.NEG, Op.NOT):
            return UOp(op, (self.value(d, depth),))
        if d is dt.bool_ and op not in (Op.AND, Op.OR, Op.XOR):
            d = self.rng.choice(self.numbers)
        a = self.value(d, depth)
        if op in SHIFT:
            return UOp(op, (a, UOp(Op.CONST, (), ConstArg(self.rng.randrange(d.bits + 2 if self.index else d.bits - 1), d))))
        if not self.index and op in (Op.IDIV, Op.MOD):
            return UOp(op, (a, UOp(Op.CONST, (), ConstArg(self.rng.choice((1, 2, 3, 4, 5, 7, 8, 12, 100)), d))))
        constant = self.rng.random() < 0.6 or (d is dt.index and op is Op.MUL)
        return UOp(op, (a, self.constant(d) if constant else self.value(d, depth)))

    def digits(self) -> UOp:
        """A part of an index in a mixed base: two of one expression often belong together, as some rules want them."""
        t, small = b.cast(self.inputs[0], dt.index), self.base
        t = b.idiv(t, 5) if self.rng.random() < 0.3 else t
        quotient = UOp(Op.IDIV, (t.src[0], b.index(5 * small))) if t.op is Op.IDIV else b.idiv(t, small)
        kind = self.rng.randrange(10)
        if kind < 2:
            return b.mod(t, small)
        if kind < 5:
            return b.mul(quotient if kind < 4 else b.mod(quotient, 3), small)
        rest = b.mod(self.leaf(dt.index), small)
        sums = (b.add(b.mod(t, 12), rest), b.add(UOp(Op.MUL, (t, self.limit())), rest), b.add(b.mul(self.leaf(dt.index), 12), rest))
        return (*sums, b.add(b.idiv(t, 3), 1), self.limit())[kind - 5]

    def limit(self) -> UOp:
        """A positive value that is no constant."""
        return b.add(b.mod(b.cast(self.inputs[-1], dt.index), 16), 1)

    def around(self, u: UOp) -> UOp:
        """An expression of an input's dtype, or a bool, with `u` in it and enough ops."""
        for _ in range(20):
            if u.dtype is dt.index or self.rng.random() < 0.05:
                u = UOp(Op.CAST, (u,), CastArg(self.rng.choice(INPUTS)))
            elif ops(u) >= LEAST_OPS:
                break
            elif u.dtype is dt.bool_:
                d = self.rng.choice(INPUTS)
                u = UOp(Op.WHERE, (u, self.value(d, 2), self.value(d, 2)))
            else:
                op = self.rng.choice((Op.ADD, Op.SUB, Op.XOR, Op.MAX, Op.MUL))
                pair = (u, self.value(u.dtype, 3))
                u = UOp(op, pair if self.rng.random() < 0.5 else pair[::-1])
        return u


def ops(u: UOp) -> int:
    """How many ops an expression has, each node once."""
    return sum(bool(s.src) and s.op is not Op.PARAM and s.op is not Op.STACK for s in toposort(u))


# Rules


def typings(rule: Rule) -> list[Assignment]:
    """The ways to type a rule in dtypes that occur here."""
    return [a for a in assignments(rule) if a.rhs is not None and all(_allowed(t) for t in (a.lhs, a.rhs))]


def _allowed(t: Typed) -> bool:
    if t.pattern.op in SHIFT and dt.index in (s.dtype for s in t.src):  # a negative count is a Trap (R29, R81)
        return False
    return t.dtype in ALLOWED and t.pattern.op is not Op.BITCAST and all(map(_allowed, t.src))


class Left:
    """Left sides of a rule that it applies to."""

    def __init__(self, rule: Rule) -> None:
        self.rule, self.typings = rule, typings(rule)
        self.names = variables(rule.lhs)

    def draw(self, at: Draw) -> UOp | None:
        for attempt in range(120):
            a = at.rng.choice(self.typings)
            whole = node(a.lhs, {n: self._leaf(at, v, a.types[n], attempt) for n, v in self.names.items()})
            if self.rule.apply(whole) is not None:
                return whole
        return None

    def _leaf(self, at: Draw, v: Pattern, d: DType, attempt: int) -> UOp:
        if v.constant:
            return at.constant(d)
        if d is dt.index and at.rng.random() < 0.4:
            return at.digits()
        return at.value(d, 0 if attempt > 60 else at.rng.randrange(3))


LEFTS = [found for rule in (*VALUES, *FURTHER) if (found := Left(rule)).typings]


def expression(seed: int, k: int) -> tuple[UOp, UOp | None, Left]:
    """Expression k, the same with the rule applied alone, and the rule."""
    left, at = LEFTS[k % len(LEFTS)], Draw(random.Random(f"{seed} {k}"))
    target = left.draw(at)
    if target is None:
        return at.around(at.value(at.rng.choice(INPUTS), 3)), None, left
    found = left.rule.apply(target)
    assert found is not None
    whole = at.around(target)
    done: dict[UOp, UOp] = {target: found[0]}
    for u in toposort(whole, gate=lambda u: u is not target):
        if u not in done:
            src = tuple(done[s] for s in u.src)
            done[u] = u if src == u.src else UOp(u.op, src, u.arg)
    return whole, done[whole], left


# Values


def evaluate(roots: list[UOp], leaves: dict[UOp, Any]) -> list[Any]:
    """The values of some nodes, by the interpreter's functions."""
    found: dict[UOp, Any] = dict(leaves)
    for root in roots:
        for u in toposort(root, gate=lambda u: u not in found):
            if u in found or u.op is Op.STACK:
                continue
            if u.op is Op.CONST:
                found[u] = constant(u.arg.value, u.dtype)
            elif u.op is Op.CAST:
                found[u] = CASTS[u.src[0].dtype, u.dtype](found[u.src[0]])
            else:
                found[u] = kernel_of(u.op, u.src)(*(found[s] for s in u.src))
    return [found[r] for r in roots]


def inputs(u: UOp, rng: np.random.Generator, k: int) -> dict[UOp, Any]:
    """Values of the inputs: all where they are few."""
    names = [p for p in toposort(u) if p.op is Op.PARAM]
    bits = sum(p.dtype.bits for p in names)
    if bits <= (MANY if k % OFTEN == 0 else FEW):
        grid = np.meshgrid(*(np.arange(int(p.dtype.min), int(p.dtype.max) + 1) for p in names), indexing="ij")
        return {p: g.ravel().astype(NUMPY[p.dtype]) for p, g in zip(names, grid, strict=True)}
    return {p: _drawn(p.dtype, rng) for p in names}


def _drawn(d: DType, rng: np.random.Generator) -> Any:
    values = rng.integers(int(d.min), int(d.max) + 1, POINTS)
    near = rng.integers(-3, 4, POINTS) + rng.choice((0, int(d.min), int(d.max), 128, 12), POINTS)
    return np.where(rng.random(POINTS) < 0.4, np.clip(near, int(d.min), int(d.max)), values).astype(NUMPY[d])


# Chunks

Found = dict[str, Any]


def chunk(seed: int, number: int, size: int) -> Found:
    """What the expressions of one chunk gave."""
    rng = np.random.default_rng((seed, number))
    fired: Counter[str] = Counter()
    log: list[Step] = []
    rewriters = (Rewriter(VALUES, log=log), Rewriter((*VALUES, *FURTHER), log=log))
    found: Found = {
        "chunk": number,
        "count": size,
        "changed": 0,
        "untargeted": 0,
        "points": 0,
        "exhaustive": 0,
        "ops": 0,
        "wrong": [],
    }
    for k in range(number * CHUNK, number * CHUNK + size):
        whole, alone, left = expression(seed, k)
        after = rewriters[k % 2](whole)
        fired[left.rule.name] += alone is not None
        found["untargeted"] += alone is None
        found["changed"] += after is not whole
        found["ops"] += ops(whole)
        if ops(whole) < LEAST_OPS:
            found["wrong"].append({"k": k, "why": "too few ops", "before": show(whole)})
        _compare(found, k, [u for u in (whole, alone, after) if u is not None], inputs(whole, rng, k))
    fired.update(s.rule for s in log)
    return {**found, "fired": dict(fired)}


def _compare(found: Found, k: int, roots: list[UOp], leaves: dict[UOp, Any]) -> None:
    count = max((len(v) for v in leaves.values()), default=1)
    found["points"] += count
    found["exhaustive"] += count == math.prod(2**p.dtype.bits for p in leaves)
    with np.errstate(all="ignore"):
        first, *others = (np.broadcast_to(v, (count,)) for v in evaluate(roots, leaves))
    for u, values in zip(roots[1:], others, strict=True):
        if len(at := np.flatnonzero(first != values)):
            where = {f"p{p.arg.slot}": int(v[at[0]]) for p, v in leaves.items()}
            found["wrong"].append({"k": k, "before": show(roots[0]), "after": show(u), "at": where})


def _work(task: tuple[int, int, int]) -> Found:
    return chunk(*task)


def run(count: int, seed: int, jobs: int, journal: Path | None) -> Iterator[Found]:
    """What every chunk gave: those of the journal first."""
    sizes = {k: min(CHUNK, count - k * CHUNK) for k in range(-(-count // CHUNK))}
    known: dict[int, Found] = {}
    if journal is not None and journal.is_file():
        lines = (json.loads(line) for line in journal.read_text().splitlines() if line.endswith("}"))
        known = {f["chunk"]: f for f in lines if f["seed"] == seed and f["count"] == sizes.get(f["chunk"])}
    yield from known.values()
    todo = [(seed, k, size) for k, size in sizes.items() if k not in known]
    with multiprocessing.Pool(jobs) as pool:
        results = map(_work, todo) if jobs == 1 else pool.imap_unordered(_work, todo)
        for found in results:
            if journal is not None:
                with journal.open("a") as lines:
                    lines.write(json.dumps({"seed": seed, **found}) + "\n")
            yield found


def main() -> None:
    parser = argparse.ArgumentParser(description="Random expressions keep their values under our rules.")
    parser.add_argument("--count", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--journal", type=Path, help="where chunks are written and found again")
    parser.add_argument("--json", type=Path, help="write the summary to this file")
    asked = parser.parse_args()
    total: Counter[str] = Counter()
    fired: Counter[str] = Counter({left.rule.name: 0 for left in LEFTS})
    wrong: list[Any] = []
    start = time.time()
    for found in run(asked.count, asked.seed, asked.jobs, asked.journal):
        total.update({k: found[k] for k in ("count", "changed", "untargeted", "points", "exhaustive", "ops")})
        fired.update(found["fired"])
        wrong += found["wrong"]
        print(f"\r{total['count']:,} of {asked.count:,}, {len(wrong)} wrong", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)
    need = FIRED * asked.count
    seldom = {n: c for n, c in fired.items() if c < need}
    summary = {
        "seed": asked.seed,
        "expressions": total["count"],
        "changed": total["changed"] / total["count"],
        "ops each": total["ops"] / total["count"],
        "points": total["points"],
        "on all inputs": total["exhaustive"],
        "rules": len(LEFTS),
        "least fired": dict(fired.most_common()[:-6:-1]),
        "too seldom": seldom,
        "rule not met": total["untargeted"],
        "wrong": len(wrong),
        "seconds": round(time.time() - start, 1),
    }
    print(json.dumps(summary, indent=1))
    for w in itertools.islice(wrong, 10):
        print(json.dumps(w))
    if asked.json:
        asked.json.write_text(json.dumps({**summary, "fired": fired, "examples": wrong[:100]}, indent=1) + "\n")
    sys.exit(1 if wrong or seldom or total["changed"] < CHANGED * total["count"] else 0)


if __name__ == "__main__":
    main()
