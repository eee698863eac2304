"""The verifier, which checks a graph against the claims of its rows and of a dialect.

`find_broken_claims` collects every broken claim, `verify` raises once with all of them. A node that breaks a gate, or whose
properties cannot be derived, is reported; its users are not checked. Traversals are iterative. A graph whose rows' claims hold is
memoized: nodes do not change, so the claims hold as long as the graph exists.
"""

from __future__ import annotations

import functools
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import NamedTuple
from weakref import WeakSet

from uops.spec.errors import SpecError
from uops.spec.ir import origins
from uops.spec.ir.node import UOp, toposort
from uops.spec.ir.ops import Op
from uops.spec.ir.scope import SelectionTarget, VerifyContext, derivation_fault
from uops.spec.ir.text import format_node_as_line, name_nodes
from uops.spec.rows.claims import Check, Claim
from uops.spec.rows.rows import ROWS
from uops.spec.untrusted import escape_to_one_line
from uops.spec.verify.dialects import DIALECTS, Dialect, find_later_bodies
from uops.spec.verify.forms import NodePosition

__all__ = ["BrokenClaim", "find_broken_claims", "verify"]


@dataclass(frozen=True, slots=True)
class BrokenClaim:
    """A broken claim: the node, the detail of what is wrong, the whole message and the line that built the node."""

    claim: Claim
    node: UOp
    detail: str
    message: str
    origin: str | None

    def __str__(self) -> str:
        return self.message


def verify(
    root: UOp,
    dialect_to_check: Dialect | None = None,
    *,
    target: SelectionTarget | None = None,
    disabled: Collection[str] = frozenset(),
) -> None:
    """Check a graph; raises SpecError with one line per broken claim, and the id of the first as its `claim`.

    Without a dialect only the claims of the rows are checked. `target` has the ops and dtypes that a graph may use after
    instruction selection. Claims whose id is in `disabled` are not checked.
    """
    if dialect_to_check is None and root in _verified:
        return
    broken = find_broken_claims(root, dialect_to_check, target=target, disabled=disabled)
    if broken:
        raise SpecError("\n".join(b.message for b in broken), claim=broken[0].claim.id)
    if not disabled:
        _verified.add(root)


def find_broken_claims(
    root: UOp,
    dialect_to_check: Dialect | None = None,
    *,
    target: SelectionTarget | None = None,
    disabled: Collection[str] = frozenset(),
) -> list[BrokenClaim]:
    """Return the broken claims in the order of the nodes, without those that may follow from another.

    These are the claims of users of bad nodes, and of a node after the first broken claim on which its others rest. The parameters
    are those of `verify`.
    """
    ctx = VerifyContext(root, toposort(root), target)
    return _VerifierRun(ctx, dialect_to_check, frozenset(disabled)).check_nodes_except_users_of_bad()


#: Graphs of which all claims of their rows hold.
_verified: WeakSet[UOp] = WeakSet()


#: The beginning of a detail that reports a gap in the table: a node cannot be derived, yet no claim of its row is broken.
UNCLAIMED = "underivable"


#: The bits of a node's position; a node of a shared body may have several.
_OUTER, _BODY, _ROOT = 1, 2, 4


class _ClaimPlan(NamedTuple):
    """The claims of one op at one position, in the order in which they are checked, and the checks of all of them."""

    dialect_gates: tuple[Claim, ...]
    row_gates: tuple[Claim, ...]
    others: tuple[Claim, ...]
    checks: tuple[Check, ...]


#: The bits of a node's position, and the later dialects of the bodies that it stands in.
_Position = tuple[int, tuple[str, ...]]


@functools.lru_cache(64)
def _plan_cache(dialect: Dialect | None, disabled: frozenset[str]) -> dict[tuple[Op, _Position], _ClaimPlan]:
    """Return the memoized plans of a dialect by op and position bits; the verifier fills them in."""
    return {}


class _VerifierRun:
    """The verification of one graph."""

    def __init__(self, ctx: VerifyContext, dialect: Dialect | None, disabled: frozenset[str]) -> None:
        self.ctx = ctx
        self.spec = spec = None if dialect is None else DIALECTS[dialect]
        self.disabled = disabled
        self.plans = _plan_cache(dialect, disabled)
        self.has_calls = spec is not None and any(u.op is Op.CALL for u in ctx.order)
        if self.has_calls and spec is not None and spec.body is not None:
            ctx.later_bodies = find_later_bodies(ctx, spec.dialect)
        self.findings: list[tuple[Claim, UOp, str]] = []

    def check_nodes_except_users_of_bad(self) -> list[BrokenClaim]:
        """Check every node but the users of bad ones; return the broken claims."""
        bad: set[UOp] = set()
        for u in self.ctx.order:
            if (bad and not bad.isdisjoint(u.src)) or not self.check_node_and_decide_on_users(u):
                bad.add(u)
        return self.describe_findings()

    def check_node_and_decide_on_users(self, u: UOp) -> bool:
        """Check the claims of `u`; return True if its users can be checked."""
        position = self.classify_position_in_call_bodies(u)
        plan = self.plans.get((u.op, position))
        if plan is None:
            plan = self.plans[u.op, position] = self.plan_claims(u.op, position)
        return self.passes_checks_and_derives_properties(u, plan.checks) or self.check_each_claim_and_allow_users(u, plan)

    def passes_checks_and_derives_properties(self, u: UOp, checks: Sequence[Check]) -> bool:
        """Return True if `u` breaks no claim: the fast path, as nearly every node passes."""
        ctx = self.ctx
        try:
            for check in checks:
                if check(u, ctx) is not None:
                    return False
        except Exception:  # `record_claim_if_broken` handles it
            return False
        return derivation_fault(u) is None

    def check_each_claim_and_allow_users(self, u: UOp, plan: _ClaimPlan) -> bool:
        """Check the claims of a node one by one, gates first; return True if its users can be checked."""
        for claim in plan.dialect_gates:
            if self.record_claim_if_broken(claim, u):
                return derivation_fault(u) is None
        for claim in plan.row_gates:
            if self.record_claim_if_broken(claim, u):
                return False
        findings_before = len(self.findings)
        for claim in plan.others:
            self.record_claim_if_broken(claim, u)
        fault = derivation_fault(u)
        if fault is None:
            return True
        schema = ROWS[u.op].claims[0]
        if len(self.findings) == findings_before and schema.id not in self.disabled:  # a gap in the claims: reported at the first
            self.findings.append((schema, u, f"{UNCLAIMED}: {fault}"))
        return False

    def record_claim_if_broken(self, claim: Claim, u: UOp) -> bool:
        """Check a claim and record it if it is broken; return True if it is."""
        try:
            detail = claim.check(u, self.ctx)
        except SpecError:  # a node cannot be derived: another one, which is reported itself, or `u`, which the caller reports
            return False
        except Exception:
            if self.disabled:  # checks that rely on a disabled gate may raise anything
                return False
            raise
        if detail is None:
            return False
        self.findings.append((claim, u, detail))
        return True

    def classify_position_in_call_bodies(self, u: UOp) -> _Position:
        """Return the position of a node: 1 outside of Call bodies, 2 inside of one, 4 the root; and its later dialects."""
        if self.spec is None:
            return 0, ()
        ctx, bits = self.ctx, _ROOT if u is self.ctx.root else 0
        if not self.has_calls:
            return bits | _OUTER, ()
        bits |= (_OUTER if u in ctx.outer else 0) | (_BODY if u in ctx.inner else 0)
        return bits, tuple([d for d, nodes in ctx.later_body_nodes_by_dialect.items() if u in nodes]) if ctx.later_bodies else ()

    def plan_claims(self, op: Op, node_position: _Position) -> _ClaimPlan:
        """Return the claims of an op at a position."""
        position_bits, later_dialects = node_position
        forms = [] if self.spec is None else [(c, f) for c, f in self.spec.claims if f.ops is None or op in f.ops]
        if position_bits & _BODY and self.spec is not None and self.spec.body is None and not position_bits & _OUTER:
            forms = []  # an opaque body
        applies = {
            NodePosition.ANY: True,
            NodePosition.OUTER: bool(position_bits & _OUTER),
            NodePosition.BODY: bool(position_bits & _BODY),
            NodePosition.ROOT: bool(position_bits & _ROOT),
        }
        dialect = [c for c, f in forms if applies[f.where] and c.id not in self.disabled]
        for name in filter(None, later_dialects):
            later = [(c, f) for c, f in DIALECTS[Dialect[name]].claims if f.ops is None or op in f.ops]
            dialect += [c for c, f in later if f.where in (NodePosition.ANY, NodePosition.BODY) and c.id not in self.disabled]
        row = [c for c in ROWS[op].claims if c.id not in self.disabled]
        dialect_gates, row_gates = tuple(c for c in dialect if c.gate), tuple(c for c in row if c.gate)
        others = tuple(c for c in (*row, *dialect) if not c.gate)
        return _ClaimPlan(dialect_gates, row_gates, others, tuple(c.check for c in (*dialect_gates, *row_gates, *others)))

    def describe_findings(self) -> list[BrokenClaim]:
        """Return the findings with their messages."""
        if not self.findings:
            return []
        names = name_nodes(self.ctx.root)
        return [_describe_broken_claim(claim, u, detail, format_node_as_line(u, names)) for claim, u, detail in self.findings]


def _describe_broken_claim(claim: Claim, u: UOp, detail: str, node_text: str) -> BrokenClaim:
    origin = origins.origin_of(u)
    built = f" - built at {origin}" if origin else ""
    message = escape_to_one_line(f"{claim.id} ({claim.text}) broken at {node_text}: {detail}{built} [spec: {claim.spec}]")
    return BrokenClaim(claim, u, detail, message, origin)
