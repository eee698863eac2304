"""The verifier: a graph against the claims of its rows and of a dialect.

`check` collects every broken claim, `verify` raises once with all of them. A node that breaks a gate, or whose properties cannot be
derived, is reported; what stands on it is not. Every walk is iterative. The claims of the rows are judged once of a graph: one that
kept them does so as long as it lives, since nodes do not change.
"""

from __future__ import annotations

import functools
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from weakref import WeakSet

from uops.spec.errors import SpecError
from uops.spec.ir import origins
from uops.spec.ir.node import UOp, toposort
from uops.spec.ir.ops import Op
from uops.spec.ir.scope import Context, Target, derivable
from uops.spec.ir.text import line, number
from uops.spec.rows.claims import Check, Claim
from uops.spec.rows.rows import ROWS
from uops.spec.untrusted import quote_name
from uops.spec.verify.dialects import DIALECTS, Dialect
from uops.spec.verify.forms import Where

__all__ = ["Broken", "check", "verify"]


@dataclass(frozen=True, slots=True)
class Broken:
    """One broken claim: where, what was wrong, and the whole message."""

    claim: Claim
    node: UOp
    detail: str
    message: str
    origin: str | None

    def __str__(self) -> str:
        return self.message


def verify(
    root: UOp, dialect: Dialect | None = None, *, target: Target | None = None, disabled: Collection[str] = frozenset()
) -> None:
    """Raise SpecError with one line per broken claim; `claim` of the error is the first one's id.

    Without a dialect only the claims of the rows are judged. `target` says what code after instruction selection may use.
    Claims whose id is in `disabled` are not judged.
    """
    if dialect is None and root in _kept:
        return
    broken = check(root, dialect, target=target, disabled=disabled)
    if broken:
        raise SpecError("\n".join(b.message for b in broken), claim=broken[0].claim.id)
    if not disabled:
        _kept.add(root)


def check(
    root: UOp, dialect: Dialect | None = None, *, target: Target | None = None, disabled: Collection[str] = frozenset()
) -> list[Broken]:
    """Every broken claim, in the order of the nodes; see `verify`."""
    ctx = Context(root, toposort(root), target)
    return _Run(ctx, dialect, frozenset(disabled)).broken()


#: Graphs that kept the claims of their rows.
_kept: WeakSet[UOp] = WeakSet()


#: Begins the detail where a node cannot be derived and no claim of its row says why: a gap in the table.
UNCLAIMED = "underivable"

#: Gates, then the rest: the claims of one op at one kind of place. Last the checks of all of them.
_Plan = tuple[tuple[Claim, ...], tuple[Claim, ...], tuple[Claim, ...], tuple[Check, ...]]


@functools.lru_cache(64)
def _plans(dialect: Dialect | None, disabled: frozenset[str]) -> dict[tuple[Op, int], _Plan]:
    """The plans made so far."""
    return {}


class _Run:
    def __init__(self, ctx: Context, dialect: Dialect | None, disabled: frozenset[str]) -> None:
        self.ctx = ctx
        self.spec = spec = None if dialect is None else DIALECTS[dialect]
        self.disabled = disabled
        self.plans = _plans(dialect, disabled)
        self.calls = spec is not None and any(u.op is Op.CALL for u in ctx.order)
        self.found: list[tuple[Claim, UOp, str]] = []

    def broken(self) -> list[Broken]:
        bad: set[UOp] = set()
        for u in self.ctx.order:
            if (bad and not bad.isdisjoint(u.src)) or not self.judge(u):
                bad.add(u)
        return self.report()

    def judge(self, u: UOp) -> bool:
        """Whether nodes that stand on `u` can be judged."""
        place = self.place(u)
        plan = self.plans.get((u.op, place))
        if plan is None:
            plan = self.plans[u.op, place] = self.plan(u.op, place)
        return self.keeps(u, plan[-1]) or self.judge_each(u, plan)

    def keeps(self, u: UOp, checks: Sequence[Check]) -> bool:
        """Return True if `u` breaks nothing for certain, as nearly every node does."""
        ctx = self.ctx
        try:
            for check in checks:
                if check(u, ctx) is not None:
                    return False
        except Exception:  # `breaks` says what that means
            return False
        return derivable(u) is None

    def judge_each(self, u: UOp, plan: _Plan) -> bool:
        """`judge` of a node that may break a claim, one claim after the other."""
        first, gates, rest, _ = plan
        for claim in first:
            if self.breaks(claim, u):
                return derivable(u) is None
        for claim in gates:
            if self.breaks(claim, u):
                return False
        before = len(self.found)
        for claim in rest:
            self.breaks(claim, u)
        why = derivable(u)
        if why is None:
            return True
        schema = ROWS[u.op].claims[0]
        if len(self.found) == before and schema.id not in self.disabled:  # a gap in the row's claims: reported at its first
            self.found.append((schema, u, f"{UNCLAIMED}: {why}"))
        return False

    def breaks(self, claim: Claim, u: UOp) -> bool:
        try:
            detail = claim.check(u, self.ctx)
        except SpecError:  # something cannot be derived: elsewhere, and is reported there, or here, and `judge` says so
            return False
        except Exception:
            if self.disabled:  # with a gate switched off, what relies on it may meet anything
                return False
            raise
        if detail is None:
            return False
        self.found.append((claim, u, detail))
        return True

    def place(self, u: UOp) -> int:
        """Bits: 1 outside of Call bodies, 2 inside of one, 4 the root."""
        if self.spec is None:
            return 0
        where = 4 if u is self.ctx.root else 0
        if not self.calls:
            return where | 1
        return where | (1 if u in self.ctx.outer else 0) | (2 if u in self.ctx.inner else 0)

    def plan(self, op: Op, place: int) -> _Plan:
        forms = [] if self.spec is None else [(c, f) for c, f in self.spec.claims if f.ops is None or op in f.ops]
        if place & 2 and self.spec is not None and self.spec.body is None and not place & 1:
            forms = []  # an opaque body
        at = {Where.ANY: True, Where.OUTER: bool(place & 1), Where.BODY: bool(place & 2), Where.ROOT: bool(place & 4)}
        dialect = [(c, f) for c, f in forms if at[f.where] and c.id not in self.disabled]
        row = [c for c in ROWS[op].claims if c.id not in self.disabled]
        first, gates = tuple(c for c, _ in dialect if c.gate), tuple(c for c in row if c.gate)
        rest = (*(c for c in row if not c.gate), *(c for c, _ in dialect if not c.gate))
        return first, gates, rest, tuple(c.check for c in (*first, *gates, *rest))

    def report(self) -> list[Broken]:
        if not self.found:
            return []
        names = number(self.ctx.root)
        return [_broken(claim, u, detail, line(u, names)) for claim, u, detail in self.found]


def _broken(claim: Claim, u: UOp, detail: str, text: str) -> Broken:
    origin = origins.of(u)
    built = f" - built at {origin}" if origin else ""
    message = quote_name(f"{claim.id} ({claim.text}) broken at {text}: {detail}{built} [spec: {claim.spec}]")
    return Broken(claim, u, detail, message, origin)
