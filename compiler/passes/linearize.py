"""Linearize: the order of instructions.

Takes: SELECTED. Gives: LINEAR (each kernel body a Linear; every instruction after its sources, a Range opens its loop, its End
closes it). Spec: Lowering Pipeline/Linearize; Range, End, After, Linear; R57 to R59.

An instruction stands in the innermost loop that it depends on, so that what a loop does not change is computed before it. Loops
nest as their Ends say: a Range that is closed by an End is inside of every loop that the End's body depends on otherwise.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from uops.compiler.ir.bodies import each
from uops.compiler.log import note
from uops.compiler.place import untranslatable
from uops.spec.ir.node import UOp, toposort
from uops.spec.ir.ops import Op
from uops.spec.ir.scope import open_ranges

#: Not instructions of their own: the root, and constants, which stand where they are used, as vectors of them do. Nor are the sizes
#: of Params, and a Group that only the root holds: it orders nothing.
_STRUCTURE = frozenset({Op.SINK, Op.CONST})


def linearize(root: UOp) -> UOp:
    """`root` with the instruction list of every kernel."""
    return each(root, linearized)


def linearized(body: UOp) -> UOp:
    """The instruction list of one body."""
    linear = UOp(Op.LINEAR, instructions(body))
    note("order", body, linear, {body: linear})
    return linear


def instructions(kernel: UOp) -> tuple[UOp, ...]:
    """The instructions of one kernel in execution order."""
    order = toposort(kernel)
    listed = [u for u in order if u.op not in _STRUCTURE and (u.op is not Op.STACK or u.spelt is None)]
    symbolic = [u.src[0] for u in listed if u.op is Op.PARAM and u.src and u.src[0].spelt is None]
    if symbolic:
        sizes = set(toposort(*symbolic))
        used_as_value = {s for u in order if u.op is not Op.PARAM and u.op is not Op.STACK for s in u.src}
        listed = [u for u in listed if u not in sizes or u in used_as_value]
    if any(s.op is Op.GROUP for s in kernel.src):
        needed = {s for u in order if u is not kernel for s in u.src}
        listed = [u for u in listed if u.op is not Op.GROUP or u in needed]
    return tuple(_Blocks(listed, order).emit())


class _Blocks:
    """The tree of loops: each node belongs to one loop, or to the kernel itself (None)."""

    def __init__(self, listed: Sequence[UOp], order: list[UOp]) -> None:
        self.listed = listed
        live = open_ranges(order)
        self.root = order[-1]
        self.around = _enclosing({r: live[u] for u in listed if u.op is Op.END for r in u.src[1:]}, self.root)
        self.parent = {r: self._innermost(outer) for r, outer in self.around.items()}
        self.live = live

    def _innermost(self, ranges: frozenset[UOp]) -> UOp | None:
        if not ranges:
            return None
        inner = max(ranges, key=lambda r: len(self.around[r]))
        if not ranges <= self.around[inner] | {inner}:
            raise untranslatable("R58 (End)", inner, f"loops {sorted(r.arg.axis_id for r in ranges)} do not nest", self.root)
        return inner

    def _members(self) -> dict[UOp | None, list[UOp]]:
        """The nodes of each block. A Range and its End stand in the loop around; everything else in the innermost loop it depends
        on."""
        found: dict[UOp | None, list[UOp]] = {}
        homes: dict[frozenset[UOp], list[UOp]] = {}
        for u in self.listed:
            if u.op is Op.RANGE:
                found.setdefault(self.parent[u], []).append(u)
                continue
            loops = self.live[u]
            home = homes.get(loops)
            if home is None:
                home = homes[loops] = found.setdefault(self._innermost(loops), [])
            home.append(u)
        return found

    def emit(self) -> list[UOp]:
        """Loop bodies are contiguous: to its block, a loop is a unit that needs all that its instructions need from outside."""
        members = self._members()
        bodies: dict[UOp, list[UOp]] = {}
        for r in sorted(self.parent, key=lambda r: -len(self.around[r])):
            bodies[r] = self._schedule(members.get(r, []), bodies)
        return self._schedule(members.get(None, []), bodies)

    def _schedule(self, members: list[UOp], bodies: dict[UOp, list[UOp]]) -> list[UOp]:
        """The instructions of a block in order; a Range is followed by its loop's body. Members are in topological order but for
        what that body needs, which comes before the Range."""
        if Op.RANGE not in {u.op for u in members}:
            return members
        place = {u: k for k, u in enumerate(members)}
        placed: dict[UOp, None] = {}
        for u in members:
            if u.op is Op.RANGE:
                _place(u, placed, lambda v: _needs(v, bodies, place))
            placed[u] = None
        out: list[UOp] = []
        for u in placed:
            out.append(u)
            if u.op is Op.RANGE:
                out += bodies[u]
        return out


def _needs(u: UOp, bodies: dict[UOp, list[UOp]], place: dict[UOp, int]) -> list[UOp]:
    """The members of the same block that come before `u`, in their order. A Range stands for all that is in its loop; what closes
    the loop names it."""
    sources = set(u.src).union(*[v.src for v in bodies[u]]).difference(bodies[u], (u,)) if u.op is Op.RANGE else set(u.src)
    return sorted(sources & place.keys(), key=place.__getitem__)


def _enclosing(left_open: dict[UOp, frozenset[UOp]], root: UOp) -> dict[UOp, frozenset[UOp]]:
    """For each Range all loops around it: those that its End leaves open, and those around these."""
    found: dict[UOp, frozenset[UOp]] = {}
    for r in left_open:
        around, pending = {r}, [r]
        while pending:
            outer = pending.pop()
            if outer not in left_open:
                raise untranslatable("R58 (End)", outer, "no End closes this loop", root)
            new = left_open[outer] - around
            around |= new
            pending += new
        found[r] = frozenset(around - {r})
        crossed = next((o for o in found[r] if r in found.get(o, ())), None)
        if crossed is not None:
            pair = sorted((r.arg.axis_id, crossed.arg.axis_id))
            raise untranslatable("R58 (End)", r, f"loops {pair} do not nest", root)
    return found


def _place(start: UOp, placed: dict[UOp, None], needs: Callable[[UOp], list[UOp]]) -> None:
    """Put a member behind those that were placed, and before it what it needs and is not there yet."""
    entered: dict[UOp, list[UOp]] = {}
    stack = [start]
    while stack:
        u = stack[-1]
        again = u in entered
        if not again and u not in placed:
            entered[u] = needs(u)
        missing = [v for v in entered[u] if v not in placed] if u not in placed else ()
        if not missing:
            placed[u] = None
            stack.pop()
        elif again:
            raise untranslatable("R58 (End)", u, "a loop around it would have to be entered twice")
        else:
            stack.extend(reversed(missing))
