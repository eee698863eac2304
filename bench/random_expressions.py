"""Test of our rules on random 8- and 16-bit expressions: rewritten expressions keep their values.

    python bench/random_expressions.py [--count N] [--seed S] [--jobs J] [--journal FILE] [--json FILE]

Expression k of a seed is a pure function of both. It is built around the left side of a rule (all rules in turn), whose variables
are random expressions and whose constants meet its condition. It has 7 ops at least and up to 3 inputs of int8, uint8, int16 or
uint16; index arithmetic stands between casts. Two forms are compared with the expression: the rule applied alone, and the normal
form by the default rules, or (every other one) by those with the further rules. Values are those of the interpreter's own
functions. All inputs are tried if there are at most 256 (for every 64th expression: 65,536), else 256 drawn with edges.

A journal keeps the results of chunks of 1000 expressions, so that an interrupted run continues. The status is 1 if a value
differs, if a rule fired fewer than 100 times in a million, or if less than 70 % of the expressions changed.
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

from uops.compiler.prove.counterexample import instantiate_typed_pattern
from uops.compiler.prove.typings import RuleTyping, TypedPattern, enumerate_rule_typings
from uops.compiler.rewrite.pattern import Pattern, variables
from uops.compiler.rewrite.rewriter import Rewriter
from uops.compiler.rewrite.rule import RewriteStep, Rule
from uops.compiler.rewrite.rules import VALUES
from uops.compiler.rewrite.rules.further import FURTHER
from uops.interp.ops.elementwise import kernel_of
from uops.interp.ops.rounding import CASTS
from uops.interp.tensor.storage import NUMPY, const_to_array
from uops.spec.ir import build as b
from uops.spec.ir import dtypes as dt
from uops.spec.ir.args import CastArg, ConstArg
from uops.spec.ir.dtypes import DType
from uops.spec.ir.node import UOp, toposort
from uops.spec.ir.ops import BITWISE, SHIFT, Op
from uops.spec.ir.text import show

#: Expressions of a chunk, fewest ops of one, and points at which it is evaluated.
CHUNK, LEAST_OPS, POINTS = 1000, 7, 256
#: Most bits of all inputs for evaluation on every input: of any expression, and of every OFTEN-th.
FEW, MANY, OFTEN = 8, 16, 64
#: Least share of expressions in which each rule fires, and least share that changes.
FIRED, CHANGED = 100e-6, 0.70
INPUTS = (dt.int8, dt.uint8, dt.int16, dt.uint16)
ALLOWED = frozenset({*INPUTS, dt.bool_, dt.index})
NUMBERS = (0, 1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 16, 100, 127, 128, 255)
_BINARY = (Op.ADD, Op.SUB, Op.MUL, Op.MAX, Op.AND, Op.OR, Op.XOR, Op.IDIV, Op.MOD, Op.SHL, Op.SHR, Op.WHERE, Op.NEG, Op.CAST)
_LOGICAL = (Op.AND, Op.OR, Op.XOR, Op.NOT, Op.CMPLT, Op.CMPLT, Op.CMPGE, Op.CMPNE, Op.CMPEQ, Op.WHERE)
_INDEX = (Op.ADD, Op.ADD, Op.SUB, Op.MUL, Op.IDIV, Op.MOD, Op.MAX, Op.WHERE)


# Expressions


class ExpressionDraw:
    """Random nodes over up to three inputs.

    `index` says whether index arithmetic may occur. Without it, shifts and divisions are by constants for which all
    implementations agree.
    """

    def __init__(self, rng: random.Random, index: bool = True) -> None:
        self.rng, self.index = rng, index
        self.numbers = (*INPUTS, dt.index) if index else INPUTS
        self.inputs = [b.param(k, (), rng.choice(INPUTS)) for k in range(rng.choice((1, 1, 2, 3)))]
        self.base = rng.choice((2, 3, 4))

    def draw_constant(self, d: DType, low: int = 0) -> UOp:
        """Draw a constant of a dtype, at least `low` except for some negated ones."""
        value = self.rng.choice(NUMBERS)
        if d is dt.bool_:
            return b.const(value % 2 == 0)
        value = -value if d.is_signed and self.rng.random() < 0.2 else value
        return UOp(Op.CONST, (), ConstArg(value if d is dt.index else b.convert_constant(max(value, low), d), d))

    def draw_leaf(self, d: DType) -> UOp:
        """Draw an input, a comparison or cast of one, or a constant."""
        if self.rng.random() < 0.15:
            return self.draw_constant(d)
        u = self.rng.choice(self.inputs)
        if d is dt.bool_:
            return UOp(self.rng.choice((Op.CMPLT, Op.CMPNE, Op.CMPGE)), (u, self.draw_constant(u.dtype)))
        return u if u.dtype is d else UOp(Op.CAST, (u,), CastArg(d))

    def draw_value(self, d: DType, depth: int) -> UOp:
        """Draw an expression of a dtype, at most `depth` deep."""
        if depth == 0 or self.rng.random() < 0.2:
            return self.draw_leaf(d)
        op = self.rng.choice(_LOGICAL if d is dt.bool_ else _INDEX if d is dt.index else _BINARY)
        return self.draw_op(op, d, depth - 1)

    def draw_op(self, op: Op, d: DType, depth: int) -> UOp:
        """Draw the operands of an op whose result has a dtype."""
        if op is Op.WHERE:
            return UOp(op, (self.draw_value(dt.bool_, depth), self.draw_value(d, depth), self.draw_value(d, depth)))
        if op is Op.CAST:
            other = self.rng.choice((*INPUTS, dt.bool_, dt.index) if self.index else (*INPUTS, dt.bool_))
            return UOp(op, (self.draw_value(other, depth),), CastArg(d)) if other is not d else self.draw_value(d, depth)
        if op in (Op.NEG, Op.NOT):
            return UOp(op, (self.draw_value(d, depth),))
        if d is dt.bool_ and op not in BITWISE:
            d = self.rng.choice(self.numbers)
        a = self.draw_value(d, depth)
        if op in SHIFT:
            return UOp(op, (a, UOp(Op.CONST, (), ConstArg(self.rng.randrange(d.bits + 2 if self.index else d.bits - 1), d))))
        if not self.index and op in (Op.IDIV, Op.MOD):
            return UOp(op, (a, UOp(Op.CONST, (), ConstArg(self.rng.choice((1, 2, 3, 4, 5, 7, 8, 12, 100)), d))))
        constant = self.rng.random() < 0.6 or (d is dt.index and op is Op.MUL)
        return UOp(op, (a, self.draw_constant(d) if constant else self.draw_value(d, depth)))

    def draw_index_digits(self) -> UOp:
        """Draw a part of an index in a mixed base; two parts of one expression often belong together, as some rules need."""
        t, small = b.cast(self.inputs[0], dt.index), self.base
        t = b.idiv(t, 5) if self.rng.random() < 0.3 else t
        quotient = UOp(Op.IDIV, (t.lhs, b.index(5 * small))) if t.op is Op.IDIV else b.idiv(t, small)
        kind = self.rng.randrange(10)
        if kind < 2:
            return b.mod(t, small)
        if kind < 5:
            return b.mul(quotient if kind < 4 else b.mod(quotient, 3), small)
        rest = b.mod(self.draw_leaf(dt.index), small)
        sums = (
            b.add(b.mod(t, 12), rest),
            b.add(UOp(Op.MUL, (t, self.draw_limit())), rest),
            b.add(b.mul(self.draw_leaf(dt.index), 12), rest),
        )
        return (*sums, b.add(b.idiv(t, 3), 1), self.draw_limit())[kind - 5]

    def draw_limit(self) -> UOp:
        """Return a positive value that is no constant."""
        return b.add(b.mod(b.cast(self.inputs[-1], dt.index), 16), 1)

    def wrap_in_expression(self, u: UOp) -> UOp:
        """Return an expression of an input's dtype, or a bool, that contains `u` and has enough ops."""
        for _ in range(20):
            if u.dtype is dt.index or self.rng.random() < 0.05:
                u = UOp(Op.CAST, (u,), CastArg(self.rng.choice(INPUTS)))
            elif count_ops(u) >= LEAST_OPS:
                break
            elif u.dtype is dt.bool_:
                d = self.rng.choice(INPUTS)
                u = UOp(Op.WHERE, (u, self.draw_value(d, 2), self.draw_value(d, 2)))
            else:
                op = self.rng.choice((Op.ADD, Op.SUB, Op.XOR, Op.MAX, Op.MUL))
                pair = (u, self.draw_value(u.dtype, 3))
                u = UOp(op, pair if self.rng.random() < 0.5 else pair[::-1])
        return u


def count_ops(u: UOp) -> int:
    """Count the ops of an expression, each node once."""
    return sum(bool(s.src) and s.op is not Op.PARAM and s.op is not Op.STACK for s in toposort(u))


# Rules


def typings(rule: Rule) -> list[RuleTyping]:
    """Return the ways to type a rule in dtypes that occur here."""
    return [a for a in enumerate_rule_typings(rule) if a.rhs is not None and all(_is_allowed(t) for t in (a.lhs, a.rhs))]


def _is_allowed(t: TypedPattern) -> bool:
    """Return True if a typed pattern has only dtypes and ops that occur here."""
    if t.pattern.op in SHIFT and dt.index in (s.dtype for s in t.src):  # a negative count is a Trap (R29, R81)
        return False
    return t.dtype in ALLOWED and t.pattern.op is not Op.BITCAST and all(map(_is_allowed, t.src))


class LeftSideGenerator:
    """Random left sides of a rule that it applies to."""

    def __init__(self, rule: Rule) -> None:
        self.rule, self.typings = rule, typings(rule)
        self.names = variables(rule.lhs)

    def draw_left_side(self, at: ExpressionDraw) -> UOp | None:
        """Return a node that the rule rewrites, or None after many attempts."""
        for attempt in range(120):
            a = at.rng.choice(self.typings)
            whole = instantiate_typed_pattern(
                a.lhs, {n: self._draw_variable(at, v, a.types[n], attempt) for n, v in self.names.items()}
            )
            if self.rule.apply(whole) is not None:
                return whole
        return None

    def _draw_variable(self, at: ExpressionDraw, v: Pattern, d: DType, attempt: int) -> UOp:
        """Draw a value for a variable of the pattern; later attempts draw leaves."""
        if v.constant:
            return at.draw_constant(d)
        if d is dt.index and at.rng.random() < 0.4:
            return at.draw_index_digits()
        return at.draw_value(d, 0 if attempt > 60 else at.rng.randrange(3))


LEFTS = [found for rule in (*VALUES, *FURTHER) if (found := LeftSideGenerator(rule)).typings]


def generate_expression(seed: int, k: int) -> tuple[UOp, UOp | None, LeftSideGenerator]:
    """Return expression k, the same with the rule applied alone, and the rule."""
    left, at = LEFTS[k % len(LEFTS)], ExpressionDraw(random.Random(f"{seed} {k}"))
    target = left.draw_left_side(at)
    if target is None:
        return at.wrap_in_expression(at.draw_value(at.rng.choice(INPUTS), 3)), None, left
    rewritten = left.rule.apply(target)
    assert rewritten is not None
    whole = at.wrap_in_expression(target)
    done: dict[UOp, UOp] = {target: rewritten[0]}
    for u in toposort(whole, gate=lambda u: u is not target):
        if u not in done:
            src = tuple(done[s] for s in u.src)
            done[u] = u if src == u.src else UOp(u.op, src, u.arg)
    return whole, done[whole], left


# Values


def evaluate_roots(roots: list[UOp], leaves: dict[UOp, Any]) -> list[Any]:
    """Evaluate nodes with the interpreter's functions."""
    values: dict[UOp, Any] = dict(leaves)
    for root in roots:
        for u in toposort(root, gate=lambda u: u not in values):
            if u in values or u.op is Op.STACK:
                continue
            if u.op is Op.CONST:
                values[u] = const_to_array(u.arg.value, u.dtype)
            elif u.op is Op.CAST:
                values[u] = CASTS[u.operand.dtype, u.dtype](values[u.operand])
            else:
                values[u] = kernel_of(u.op, u.src)(*(values[s] for s in u.src))
    return [values[r] for r in roots]


def draw_inputs(u: UOp, rng: np.random.Generator, k: int) -> dict[UOp, Any]:
    """Return values of the inputs: all of them if they are few."""
    names = [p for p in toposort(u) if p.op is Op.PARAM]
    bits = sum(p.dtype.bits for p in names)
    if bits <= (MANY if k % OFTEN == 0 else FEW):
        grid = np.meshgrid(*(np.arange(int(p.dtype.min), int(p.dtype.max) + 1) for p in names), indexing="ij")
        return {p: g.ravel().astype(NUMPY[p.dtype]) for p, g in zip(names, grid, strict=True)}
    return {p: _draw_edge_values(p.dtype, rng) for p in names}


def _draw_edge_values(d: DType, rng: np.random.Generator) -> Any:
    """Draw values of a dtype, many of them near its edges."""
    values = rng.integers(int(d.min), int(d.max) + 1, POINTS)
    near = rng.integers(-3, 4, POINTS) + rng.choice((0, int(d.min), int(d.max), 128, 12), POINTS)
    return np.where(rng.random(POINTS) < 0.4, np.clip(near, int(d.min), int(d.max)), values).astype(NUMPY[d])


# Chunks

Found = dict[str, Any]


def check_chunk(seed: int, number: int, size: int) -> Found:
    """Check the expressions of one chunk and return the counts and the wrong ones."""
    rng = np.random.default_rng((seed, number))
    fired: Counter[str] = Counter()
    log: list[RewriteStep] = []
    rewriters = (Rewriter(VALUES, log=log), Rewriter((*VALUES, *FURTHER), log=log))
    result: Found = {
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
        whole, alone, left = generate_expression(seed, k)
        after = rewriters[k % 2](whole)
        fired[left.rule.name] += alone is not None
        result["untargeted"] += alone is None
        result["changed"] += after is not whole
        result["ops"] += count_ops(whole)
        if count_ops(whole) < LEAST_OPS:
            result["wrong"].append({"k": k, "why": "too few ops", "before": show(whole)})
        _compare_values(result, k, [u for u in (whole, alone, after) if u is not None], draw_inputs(whole, rng, k))
    fired.update(s.rule for s in log)
    return {**result, "fired": dict(fired)}


def _compare_values(result: Found, k: int, roots: list[UOp], leaves: dict[UOp, Any]) -> None:
    """Record the points at which rewritten forms have another value."""
    count = max((len(v) for v in leaves.values()), default=1)
    result["points"] += count
    result["exhaustive"] += count == math.prod(2**p.dtype.bits for p in leaves)
    with np.errstate(all="ignore"):
        first, *others = (np.broadcast_to(v, (count,)) for v in evaluate_roots(roots, leaves))
    for u, values in zip(roots[1:], others, strict=True):
        if len(at := np.flatnonzero(first != values)):
            where = {f"p{p.arg.slot}": int(v[at[0]]) for p, v in leaves.items()}
            result["wrong"].append({"k": k, "before": show(roots[0]), "after": show(u), "at": where})


def _check_chunk_task(task: tuple[int, int, int]) -> Found:
    """Check one chunk, given as a tuple."""
    return check_chunk(*task)


def run_chunks(count: int, seed: int, jobs: int, journal: Path | None) -> Iterator[Found]:
    """Yield the results of every chunk, those of the journal first."""
    sizes = {k: min(CHUNK, count - k * CHUNK) for k in range(-(-count // CHUNK))}
    stored: dict[int, Found] = {}
    if journal is not None and journal.is_file():
        lines = (json.loads(line) for line in journal.read_text().splitlines() if line.endswith("}"))
        stored = {f["chunk"]: f for f in lines if f["seed"] == seed and f["count"] == sizes.get(f["chunk"])}
    yield from stored.values()
    todo = [(seed, k, size) for k, size in sizes.items() if k not in stored]
    with multiprocessing.Pool(jobs) as pool:
        results = map(_check_chunk_task, todo) if jobs == 1 else pool.imap_unordered(_check_chunk_task, todo)
        for result in results:
            if journal is not None:
                with journal.open("a") as lines:
                    lines.write(json.dumps({"seed": seed, **result}) + "\n")
            yield result


def main() -> None:
    parser = argparse.ArgumentParser(description="Random expressions keep their values under our rules.")
    parser.add_argument("--count", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--journal", type=Path, help="where chunks are written and found again")
    parser.add_argument("--json", type=Path, help="write the summary to this file")
    options = parser.parse_args()
    total: Counter[str] = Counter()
    fired: Counter[str] = Counter({left.rule.name: 0 for left in LEFTS})
    wrong: list[Any] = []
    start = time.time()
    for result in run_chunks(options.count, options.seed, options.jobs, options.journal):
        total.update({k: result[k] for k in ("count", "changed", "untargeted", "points", "exhaustive", "ops")})
        fired.update(result["fired"])
        wrong += result["wrong"]
        print(f"\r{total['count']:,} of {options.count:,}, {len(wrong)} wrong", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)
    need = FIRED * options.count
    seldom = {n: c for n, c in fired.items() if c < need}
    summary = {
        "seed": options.seed,
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
    if options.json:
        options.json.write_text(json.dumps({**summary, "fired": fired, "examples": wrong[:100]}, indent=1) + "\n")
    sys.exit(1 if wrong or seldom or total["changed"] < CHANGED * total["count"] else 0)


if __name__ == "__main__":
    main()
