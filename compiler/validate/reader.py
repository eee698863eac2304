"""The accesses of a kernel: what each Load and Store of a body touches, in which loops, and where its gate holds.

Takes: a body, as a graph of KERNEL or SCHEDULED or as a LINEAR. Gives: a `Body` of `Site`s. Of a vector the lanes are one unknown
where its elements are evenly spaced, else each lane is a Site of its own. An integer that a machine dtype may not hold is a `wrap`
of it (R05), so that terms mean what the machine computes. Raises SpecError for an access of a form that is not known here.
Spec: Memory; R05, R08, R45, R52, R57.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from uops.compiler.ir.loops import in_order
from uops.compiler.validate import terms as T
from uops.compiler.validate.sites import Body, Site, base, counter, lane_of, variable
from uops.compiler.validate.terms import App, Cond, Lin, Var
from uops.spec.errors import SpecError
from uops.spec.ir import dtypes as dt
from uops.spec.ir.dtypes import DType
from uops.spec.ir.node import Dim, UOp, toposort
from uops.spec.ir.ops import Op
from uops.spec.ir.scope import is_variable, open_ranges

#: A value of each lane, or one formula for all of them.
Read = Lin | Cond | list["Lin | Cond"] | None


def read(root: UOp) -> Body:
    """The accesses of a body."""
    return _Reader(root).body()


class _Reader:
    def __init__(self, root: UOp) -> None:
        while root.op is Op.PROGRAM:
            root = root.src[0]
        self.root = root
        self.known: dict[UOp, Read] = {}
        self.names: dict[object, str] = {}
        self.changed: set[UOp] = set()

    def body(self) -> Body:
        listed = self.root.op is Op.LINEAR
        placed = _listed(self.root.src) if listed else _graph(self.root)
        self.changed = {base(u.src[0]) for u, _ in placed if u.op in _KIND and u.op is not Op.LOAD}
        sites: list[Site] = []
        barriers = []
        for at, (u, loops) in enumerate(placed):
            if u.op in _KIND:
                sites += self._sites(u, loops, at)
            elif u.op is Op.BARRIER:
                barriers.append((at, loops))
        return Body(self.root, tuple(sites), tuple(barriers), listed)

    def _sites(self, u: UOp, loops: tuple[UOp, ...], at: int) -> list[Site]:
        address, gate = u.src[0], T.TRUE
        position = {Op.LOAD: 2, Op.STORE: 2}.get(u.op, 9)
        found: list[Read] = [self._index(address)]
        found.append(self.value(u.src[position]) if len(u.src) > position else gate)
        within = T.TRUE
        for r in loops:
            if r.src[0].op is Op.CONST:
                within = within if r.src[0].arg.value > 0 else T.FALSE
            else:
                within = T.both(within, T.at_least(T.add(T.add(self._lin(r.src[0]), T.ONE, -1), T.of(counter(r)), -1)))
        n = (address.shape or (1,))[0] if address.shape else 1
        memory = base(address)
        lane = lane_of(int(n)) if address.shape else None
        made = []
        for index, condition, one in _parted(found, lane):
            assert isinstance(index, Lin) and isinstance(condition, Cond)
            index = T.under(index, T.conjuncts(condition))
            made.append(Site(_KIND[u.op], u, memory, index, condition, loops, one, within, at, self.size(memory)))
        return made

    def size(self, memory: UOp) -> Lin:
        """Elements of a memory; of some, variables decide (R48)."""
        found = Lin(int(memory.arg.size)) if memory.op is Op.BUFFER else T.ONE
        for d in memory.shape or () if memory.op is Op.PARAM else ():
            found = T.mul(found, Lin(d) if isinstance(d, int) else self._lin(d))
        return found

    def _index(self, address: UOp) -> Read:
        """The element that an address names; of a whole memory, all of them."""
        while address.op is Op.AFTER:
            address = address.src[0]
        if address.op is Op.INDEX and len(address.src) == 2 and address.src[0].op in (Op.AFTER, Op.PARAM, Op.BUFFER):
            return self.value(address.src[1])
        if address.op in (Op.PARAM, Op.BUFFER):
            shape = address.shape or ()
            if len(shape) <= 1 and all(isinstance(n, int) for n in shape):
                return T.of(lane_of(int(shape[0]))) if shape else T.ZERO
        raise SpecError(f"an access by {address.op.name.lower()} of {address.src[0].op.name.lower()} is not read here")

    # Values

    def value(self, u: UOp) -> Read:
        """What an integer or a truth is, iteratively."""
        stack = [u]
        while stack:
            v = stack[-1]
            if v in self.known:
                stack.pop()
                continue
            missing = [s for s in _operands(v) if s not in self.known]
            if missing:
                stack += missing
            else:
                self.known[v] = self._made(v)
                stack.pop()
        return self.known[u]

    def _lin(self, u: UOp) -> Lin:
        found = self.value(u)
        assert isinstance(found, Lin)
        return found

    def _made(self, u: UOp) -> Read:
        if u.dtype.is_float or u.dtype is dt.void:
            return None
        if u.op is Op.STACK:
            return _stacked([self.known[s] for s in u.src])
        if u.op is Op.INDEX and u.src[0] in self.known:
            return self._lane(u)
        leaf = _LEAVES.get(u.op)
        if leaf is not None:
            return leaf(self, u)
        operands = [self.known.get(s) for s in u.src]
        read = [x for x in operands if x is not None]
        if u.op not in _RULES or len(read) < len(operands):
            return self.unknown(u)
        made = _RULES[u.op]
        lists = [x for x in read if isinstance(x, list)]
        if not lists:
            return made(self, u, *read)
        n = len(lists[0])
        return _stacked([made(self, u, *(_at(x, k, n) for x in read)) for k in range(n)])

    def held(self, u: UOp) -> Read:
        """What a Load gives: of memory that the body only reads, a function of the element."""
        memory, index = base(u.src[0]), self._index(u.src[0])
        extra = [x for x in (self.known.get(s) for s in u.src[1:]) if isinstance(x, Lin | Cond)]
        told = isinstance(index, Lin) and len(extra) == len(u.src) - 1
        if memory.op is not Op.PARAM or memory in self.changed or not told:
            return self.unknown(u, stored=memory in self.changed)
        assert isinstance(index, Lin)
        if u.dtype is dt.bool_:
            found: Lin | Cond = Cond("held", (str(memory.arg.slot), index))
        else:
            found = T.of(App(f"held-{u.dtype.short}-{memory.arg.slot}", (index,)))
        return _where(self, u, extra[1], found, extra[0]) if extra else found

    def _lane(self, u: UOp) -> Read:
        """One element of a vector."""
        whole, k = self.known[u.src[0]], self.known.get(u.src[1])
        n = (u.src[0].shape or (1,))[0]
        if not isinstance(n, int) or not isinstance(k, Lin):
            return self.unknown(u)
        if isinstance(whole, list):
            at = _elements(k, u.shape)
            if any(x.terms for x in at):
                return self.unknown(u)
            chosen = [whole[x.const] for x in at]
            return _stacked([*chosen]) if u.shape else chosen[0]
        if whole is not None and not any(v.loaded for v in T.unknowns(whole)):
            found: Read = T.substituted(whole, {lane_of(n): k})
            return found
        return self.unknown(u)

    def unknown(self, u: UOp, stored: bool = False) -> Read:
        """A value of which only the dtype's bounds are known."""
        name = self.names.setdefault(u, f"v{len(self.names)}")
        if u.dtype is dt.bool_:
            return T.negated(T.is_zero(T.of(Var(name, 0, 1, True, stored))))
        low, high = u.min_max or (u.dtype.min, u.dtype.max)
        return T.of(Var(name, int(low), int(high), True, stored))


def _operands(u: UOp) -> Sequence[UOp]:
    """The sources whose values are read."""
    if u.op is Op.LOAD:
        address = u.src[0]
        while address.op is Op.AFTER:
            address = address.src[0]
        return () if u.dtype.is_float else (*(address.src[1:] if address.op is Op.INDEX else ()), *u.src[1:])
    if u.dtype.is_float or u.dtype is dt.void or u.op in (Op.PARAM, Op.BUFFER, Op.RANGE, Op.CONST, Op.AFTER, Op.REDUCE):
        return ()
    if u.op is Op.INDEX:
        return u.src if u.src[0].op not in (Op.PARAM, Op.BUFFER, Op.AFTER) else ()
    return () if u.op in (Op.CAST, Op.BITCAST) and u.src[0].dtype.is_float else u.src


def _graph(root: UOp) -> list[tuple[UOp, tuple[UOp, ...]]]:
    order = toposort(root)
    live = open_ranges(order)
    return [(u, tuple(in_order(live[u]))) for u in order]


def _listed(instructions: Sequence[UOp]) -> list[tuple[UOp, tuple[UOp, ...]]]:
    found, loops = [], list[UOp]()
    for u in instructions:
        if u.op is Op.END:
            loops = [r for r in loops if r not in u.src[1:]]
        found.append((u, tuple(loops)))
        if u.op is Op.RANGE:
            loops.append(u)
    return found


def _elements(k: Lin, shape: tuple[Dim, ...] | None) -> list[Lin]:
    """A position per lane."""
    n = int(str(shape[0])) if shape else 1
    return [T.settled(T.substituted(k, {lane_of(n): Lin(j)})) for j in range(n)] if shape else [k]


def _at(x: Read, k: int, n: int) -> Read:
    """Lane k of n."""
    if isinstance(x, list):
        return x[k]
    return x if x is None else T.substituted(x, {lane_of(n): Lin(k)})


def _stacked(parts: list[Read]) -> Read:
    """Elements side by side: one formula where they differ by constants."""
    first = parts[0]
    if any(p is None or isinstance(p, list) for p in parts):
        return None
    if all(p == first for p in parts):
        return first
    if isinstance(first, Lin):
        steps = [T.add(p, first, -1) for p in parts]  # type: ignore[arg-type]
        if not any(s.terms for s in steps):
            return T.add(first, _table(steps))
    elif all(p in (T.TRUE, T.FALSE) for p in parts):
        return T.negated(T.is_zero(_table([Lin(int(p == T.TRUE)) for p in parts])))
    return parts  # type: ignore[return-value]


def _table(numbers: Sequence[Lin]) -> Lin:
    """The number that a lane has."""
    lane = T.of(lane_of(len(numbers)))
    step = numbers[1].const if len(numbers) > 1 else 0
    if all(x.const == k * step for k, x in enumerate(numbers)):
        return T.scale(lane, step)
    return T.of(App("table", (lane, *numbers)))


def _parted(found: list[Read], lane: Var | None) -> list[tuple[Read, Read, Var | None]]:
    """(index, gate, lane) as one formula, or per lane."""
    if not any(isinstance(x, list) for x in found):
        return [(found[0], found[1], lane)]
    assert lane is not None
    n = lane.high + 1
    return [(_at(found[0], k, n), _at(found[1], k, n), None) for k in range(n)]


# What the ops of index arithmetic mean

_KIND = {Op.LOAD: "load", Op.STORE: "store", Op.ATOMICADD: "atomic"}


def _fit(d: DType, x: Lin) -> Lin:
    """The number that `d` holds (R05); of index, any (R08)."""
    if d is dt.index:
        return x
    low, high = T.bounds(x)
    return x if d.min <= low and high <= d.max else T.of(App(f"wrap-{d.short}", (x,)))


def _constant(reader: _Reader, u: UOp) -> Read:
    if u.dtype is dt.bool_:
        return T.TRUE if u.arg.value else T.FALSE
    return Lin(int(u.arg.value))


def _param(reader: _Reader, u: UOp) -> Read:
    return T.of(variable(u)) if is_variable(u) else None


_LEAVES: dict[Op, Callable[[_Reader, UOp], Read]] = {
    Op.CONST: _constant,
    Op.PARAM: _param,
    Op.RANGE: lambda reader, u: T.of(counter(u)),
    Op.BUFFER: lambda reader, u: None,
    Op.LOAD: lambda reader, u: reader.held(u),
    Op.AFTER: lambda reader, u: None,
}


def _as_lin(x: Lin | Cond) -> Lin:
    """A truth as 0 or 1."""
    return x if isinstance(x, Lin) else T.of(App("where", (x, T.ONE, T.ZERO)))


def _linear(f: Callable[..., Lin]) -> Callable[..., Read]:
    def rule(reader: _Reader, u: UOp, *args: Lin | Cond) -> Read:
        if u.dtype is dt.bool_:
            return reader.unknown(u)
        return _fit(u.dtype, f(*args))

    return rule


def _app(name: str) -> Callable[..., Lin]:
    return lambda *args: T.of(App(name, args))


def _logic(name: str) -> Callable[..., Read]:
    def rule(reader: _Reader, u: UOp, *args: Lin | Cond) -> Read:
        if u.dtype is not dt.bool_:
            return _fit(u.dtype, T.of(App(name, args)))
        a, b = args
        if name == "xor":
            return Cond("or", (Cond("and", (a, T.negated(b))), Cond("and", (T.negated(a), b))))  # type: ignore[arg-type]
        return Cond(name, (a, b))

    return rule


def _compare(f: Callable[[Lin, Lin], Cond]) -> Callable[..., Read]:
    def rule(reader: _Reader, u: UOp, a: Lin | Cond, b: Lin | Cond) -> Read:
        return f(_as_lin(a), _as_lin(b))

    return rule


def _less(a: Lin, b: Lin) -> Cond:
    return T.at_least(T.add(T.add(b, a, -1), T.ONE, -1))


def _not_less(a: Lin, b: Lin) -> Cond:
    return T.at_least(T.add(a, b, -1))


def _cast(reader: _Reader, u: UOp, a: Lin | Cond) -> Read:
    if u.dtype is dt.bool_:
        return a if isinstance(a, Cond) else T.negated(T.is_zero(a))
    return _fit(u.dtype, _as_lin(a))


def _where(reader: _Reader, u: UOp, c: Lin | Cond, a: Lin | Cond, b: Lin | Cond) -> Read:
    c = c if isinstance(c, Cond) else T.negated(T.is_zero(c))
    if isinstance(a, Cond) and isinstance(b, Cond):
        return Cond("or", (Cond("and", (c, a)), Cond("and", (T.negated(c), b))))
    return T.of(App("where", (c, a, b)))


def _divided(name: str) -> Callable[..., Lin]:
    def f(a: Lin, b: Lin) -> Lin:
        if not b.terms and b.const == 1:
            return a if name == "idiv" else T.ZERO
        return T.of(App(name, (a, b)))

    return f


def _shifted(reader: _Reader, u: UOp, a: Lin | Cond, n: Lin | Cond) -> Read:
    if (
        isinstance(a, Lin)
        and isinstance(n, Lin)
        and not n.terms
        and 0 <= n.const < min(63, u.dtype.bits if u.dtype is not dt.index else 63)
    ):
        left = u.op is Op.SHL
        return _fit(u.dtype, T.scale(a, 1 << n.const) if left else T.of(App("idiv", (a, Lin(1 << n.const)))))
    return reader.unknown(u)


_RULES: dict[Op, Callable[..., Read]] = {
    Op.ADD: _linear(T.add),
    Op.SUB: _linear(lambda a, b: T.add(a, b, -1)),
    Op.NEG: _linear(lambda a: T.scale(a, -1)),
    Op.MUL: _linear(T.mul),
    Op.MULACC: _linear(lambda a, b, c: T.add(T.mul(a, b), c)),
    Op.MAX: _linear(_app("max")),
    Op.IDIV: _linear(_divided("idiv")),
    Op.MOD: _linear(_divided("mod")),
    Op.TRUNC: lambda reader, u, a: a,
    Op.AND: _logic("and"),
    Op.OR: _logic("or"),
    Op.XOR: _logic("xor"),
    Op.SHL: _shifted,
    Op.SHR: _shifted,
    Op.NOT: lambda reader, u, a: T.negated(a),
    Op.CMPLT: _compare(_less),
    Op.CMPGT: _compare(lambda a, b: _less(b, a)),
    Op.CMPGE: _compare(_not_less),
    Op.CMPLE: _compare(lambda a, b: _not_less(b, a)),
    Op.CMPEQ: _compare(lambda a, b: T.is_zero(T.add(a, b, -1))),
    Op.CMPNE: _compare(lambda a, b: T.negated(T.is_zero(T.add(a, b, -1)))),
    Op.CAST: _cast,
    Op.WHERE: _where,
}
