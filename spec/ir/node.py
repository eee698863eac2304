"""The node: `UOp(op, src, arg, tag)`, interned, with five derived properties.

Two nodes made from the same op, sources, arg and tag are the same object, so nodes are compared with `is` and hash by identity.
`dtype` and `shape` are derived with the node, `device`, `min_max` and `axis` on first use, by the rules in `uops.spec.ir.derive`;
the walk is iterative, so depth is not limited by Python's stack. Construction checks nothing: `uops.spec.verify.verifier` judges,
`uops.spec.ir.build` helps.
"""

from __future__ import annotations

import threading
import weakref
from _weakref import _remove_dead_weakref  # type: ignore[attr-defined] # what the weak dictionaries of the standard library rest on
from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import Any

from uops.spec.errors import SpecError, SpecValueError
from uops.spec.ir.args import Arg, Device
from uops.spec.ir.dtypes import DType
from uops.spec.ir.operands import Operands
from uops.spec.ir.ops import Op

#: One entry of a shape: a Python int, or an index expression when symbolic (R48).
Dim = Any
MinMax = tuple[float, float]

#: What a derived property holds before its first use. Where speed matters, `_min_max` may be read past its property, whose call
#: costs five times as much; `dtype` and `shape` are none, but on ill-formed nodes.
UNSET: Any = object()
#: Axes of a shape, at most: as many as an array of NumPy has (R65).
MOST_AXES = 64
_interned: dict[tuple[Any, ...], _Ref] = {}
_new = object.__new__
#: Called with each new node while `uops.spec.ir.origins` records.
created: Callable[[UOp], None] | None = None


class _Ref(weakref.ref["UOp"]):
    """What the table of nodes holds of a node, which does not keep it alive; `key` is its place there."""

    __slots__ = ("key",)

    key: tuple[Any, ...]


def _forget(ref: _Ref, remove: Any = _remove_dead_weakref, table: dict[tuple[Any, ...], _Ref] = _interned) -> None:
    """The node is gone. Its place may have been taken by an equal one, made in between: what is removed in one step is dead."""
    remove(table, ref.key)


class _Fields:
    """The memory of a node, while it is filled."""

    __slots__ = ("__weakref__", "_axis", "_device", "_dtype", "_min_max", "_shape", "_spelt", "arg", "op", "src", "tag")

    op: Op
    src: tuple[UOp, ...]
    arg: Any
    tag: Any
    _dtype: Any
    _shape: Any
    _device: Any
    _min_max: Any
    _axis: Any
    _spelt: Any


class UOp(_Fields, Operands):
    """One node of the graph. `Operands` names its sources."""

    __slots__ = ()

    # Both raise SpecError on an ill-formed node. A shape's extents are ints or index expressions.
    dtype: DType = _Fields.__dict__["_dtype"]
    shape: tuple[Dim, ...] = _Fields.__dict__["_shape"]

    def __new__(cls, op: Op, src: Iterable[UOp] = (), arg: Arg = None, tag: object = None) -> UOp:
        if src.__class__ is not tuple:
            src = tuple(src)
        key = (op, src, arg, tag)
        ref = _interned.get(key)
        if ref is not None:
            known = ref()
            if known is not None:
                return known
        node: Any = _new(_Fields)
        node.op = op
        node.src = src
        node.arg = arg
        node.tag = tag
        node._device = node._min_max = node._axis = node._spelt = UNSET
        try:
            node._dtype = _dtypes[op](node)
            shape = node._shape = _shapes[op](node)
            if len(shape) > MOST_AXES:
                raise SpecValueError(_too_many(len(shape)))
            node.__class__ = UOp  # from here on it is immutable
        except _UNDERIVED:
            node._dtype = node._shape = UNSET
            node.__class__ = Underived
        made = _Ref(node, _forget)
        made.key = key
        while (other := _interned.setdefault(key, made)) is not made:
            known = other()
            if known is not None:  # another thread was faster
                return known
            _forget(other)
        if created is not None:
            created(node)
        return node  # type: ignore[no-any-return]

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"a UOp is immutable: cannot set {name}")

    def __delattr__(self, name: str) -> None:
        raise AttributeError(f"a UOp is immutable: cannot delete {name}")

    def __copy__(self) -> UOp:
        return self

    def __deepcopy__(self, memo: object) -> UOp:
        return self

    def __repr__(self) -> str:
        return f"<UOp {self.op.name} of {len(self.src)} sources, arg={self.arg!r}>"

    @property
    def device(self) -> Device | None:
        v = self._device
        return v if v is not UNSET else _fill(self, "_device")  # type: ignore[no-any-return]

    @property
    def min_max(self) -> MinMax | None:
        """Bounds of every non-NaN element (R70, R71); None for void."""
        v = self._min_max
        return v if v is not UNSET else _fill(self, "_min_max")  # type: ignore[no-any-return]

    @property
    def axis(self) -> int | None:
        """The sharded axis of a multi-device value (R73 to R76), else None."""
        v = self._axis
        return v if v is not UNSET else _fill(self, "_axis")  # type: ignore[no-any-return]

    def replace(self, *, op: Op | None = None, src: Iterable[UOp] | None = None, arg: Any = UNSET, tag: Any = UNSET) -> UOp:
        """The same node but for the fields given."""
        return UOp(
            self.op if op is None else op,
            self.src if src is None else src,
            self.arg if arg is UNSET else arg,
            self.tag if tag is UNSET else tag,
        )

    @property
    def spelt(self) -> tuple[int, ...] | None:
        """The integers that a Stack of index constants spells as a shape operand (R40), or None if it is no such Stack."""
        v = self._spelt
        if v is UNSET:
            v = _spelling(self.src) if self.op is Op.STACK else None
            _set(self, "_spelt", v)
        return v  # type: ignore[no-any-return]

    @property
    def const(self) -> Any:
        """The value of a Const node."""
        if self.op is not Op.CONST:
            raise SpecError(f"{self!r} is not a Const")
        return self.arg.value


class Underived(UOp):
    """A node whose dtype and shape were not derived when it was made: it is ill-formed."""

    __slots__ = ()

    @property
    def dtype(self) -> DType:  # type: ignore[override]
        v = self._dtype
        return v if v is not UNSET else _fill(self, "_dtype")  # type: ignore[no-any-return]

    @property
    def shape(self) -> tuple[Dim, ...]:  # type: ignore[override]
        v = self._shape
        return v if v is not UNSET else _fill(self, "_shape")  # type: ignore[no-any-return]


def _spelling(src: tuple[UOp, ...]) -> tuple[int, ...] | None:
    """The values of a Stack's sources, if they are constants; those of a vector are often one."""
    if len(src) > 1 and src[0] is src[-1] and src.count(src[0]) == len(src):
        return (src[0].arg.value,) * len(src) if src[0].op is Op.CONST else None
    for s in src:
        if s.op is not Op.CONST:
            return None
    return tuple([s.arg.value for s in src])


_SLOTS = ("_dtype", "_shape", "_device", "_min_max", "_axis")
Rule = Callable[[UOp], Any]
#: slot -> the rule of each op; filled by `uops.spec.ir.derive`.
RULES: dict[str, dict[Op, Rule]] = {slot: {} for slot in _SLOTS}


_set = object.__setattr__
_RULE_FAULTS = (IndexError, KeyError, TypeError, ValueError, AttributeError, ZeroDivisionError, OverflowError)
_UNDERIVED = (SpecError, *_RULE_FAULTS)
_dtypes, _shapes = RULES["_dtype"], RULES["_shape"]


def too_many_axes(u: UOp) -> str | None:
    """The fault of a node whose shape would have more than `MOST_AXES`; None for any other node."""
    if u.__class__ is UOp:
        return None
    try:
        n = len(_shapes[u.op](u))
    except _UNDERIVED:
        return None
    return _too_many(n) if n > MOST_AXES else None


def _too_many(n: int) -> str:
    return f"a shape of {n} axes, where a value has at most {MOST_AXES} (R65)"


def _limit_axes(slot: str, value: Any) -> Any:
    """Return the value of a property. Raises SpecValueError for a shape of too many axes."""
    if slot == "_shape" and len(value) > MOST_AXES:
        raise SpecValueError(_too_many(len(value)))
    return value


def _fill(root: UOp, slot: str) -> Any:
    """Compute one property of `root`. A rule reads its sources' properties, which computes them in turn; a graph too deep for
    that is walked iteratively."""
    try:
        value = _limit_axes(slot, RULES[slot][root.op](root))
    except RecursionError:
        return _fill_deep(root, slot)
    except _RULE_FAULTS:
        value = _derived(root, slot)  # says what is wrong
    _set(root, slot, value)
    return value


def _derived(u: UOp, slot: str) -> Any:
    try:
        return _limit_axes(slot, RULES[slot][u.op](u))
    except SpecError:
        raise
    except _RULE_FAULTS as e:
        raise SpecError(f"cannot derive {slot[1:]} of {u!r}: {type(e).__name__}: {e}") from e


def _fill_deep(root: UOp, slot: str) -> Any:
    """Compute one property of `root` and of every source below it that lacks it, sources first."""
    get = object.__getattribute__
    stack = [root]
    while stack:
        u = stack[-1]
        if get(u, slot) is not UNSET:
            stack.pop()
            continue
        missing = [s for s in u.src if get(s, slot) is UNSET]
        if missing:
            stack.extend(missing)
            continue
        object.__setattr__(u, slot, _derived(u, slot))
        stack.pop()
    return get(root, slot)


class _Orders(threading.local):
    """What somebody keeps in this thread (`uops.compiler.rewrite.lowering_cache`): `kept`, orders found before, by root; `kinds`,
    the nodes of each op in them; `opened`, the ranges in whose loops a node stands (`uops.spec.ir.scope`)."""

    kept: dict[UOp, list[UOp]] | None = None
    kinds: dict[UOp, dict[Op, list[UOp]]] | None = None
    opened: dict[UOp, frozenset[UOp]] | None = None


orders = _Orders()
#: Sources from which a node is taken for a vector, which has the same few in many lanes, or constants alone.
MANY = 5
#: Orders kept at most; then all are dropped.
_MOST_ORDERS = 512


def toposort(*roots: UOp, gate: Callable[[UOp], bool] | None = None) -> list[UOp]:
    """Every node reachable from `roots`, each once, sources before users, in a deterministic order; iterative.

    With `gate`, the sources of a node for which gate(node) is false are not entered.
    """
    kept = orders.kept if gate is None and len(roots) == 1 else None
    if kept is None:
        return _toposort(roots, gate, {})
    found = kept.get(roots[0])
    if found is None:
        if len(kept) >= _MOST_ORDERS:
            kept.clear()
        found = kept[roots[0]] = _toposort(roots, None, kept)
    return found[:]


def nodes_of(root: UOp, op: Op) -> list[UOp]:
    """The nodes of one op at and below `root`, sources before users; not to be changed."""
    kinds = orders.kinds
    if kinds is None:
        return [u for u in toposort(root) if u.op is op]
    found = kinds.get(root)
    if found is None:
        if len(kinds) >= _MOST_ORDERS:
            kinds.clear()
        found = kinds[root] = _by_op(root, kinds)
    return found.get(op, [])


def _by_op(root: UOp, kinds: dict[UOp, dict[Op, list[UOp]]]) -> dict[Op, list[UOp]]:
    """The nodes at and below `root` by op. What stands around an effect, Ends and a Sink, adds itself to those of the effect."""
    if root.op is Op.END or (root.op is Op.SINK and len(root.src) == 1):
        effect = root.src[0]
        below = kinds.get(effect)
        if below is None and (orders.kept is None or root not in orders.kept):
            below = kinds[effect] = _by_op(effect, kinds)
        if below is not None and all(s in below.get(s.op, ()) for s in root.src[1:]):
            return {**below, root.op: [*below.get(root.op, ()), root]}
    found: dict[Op, list[UOp]] = defaultdict(list)
    for u in toposort(root):
        found[u.op].append(u)
    return found


def _toposort(roots: tuple[UOp, ...], gate: Callable[[UOp], bool] | None, kept: dict[UOp, list[UOp]]) -> list[UOp]:
    if gate is None:
        try:
            return _toposort_shallow(roots, kept)
        except RecursionError:  # too deep for Python's stack
            pass
    seen: set[UOp] = set()
    order: list[UOp] = []
    stack: list[Any] = list(roots[::-1])  # a None lies on a node whose sources come before it
    push, pop, enter = stack.append, stack.pop, seen.add
    while stack:
        u = pop()
        if u is None:
            order.append(pop())
        elif u not in seen:
            enter(u)
            if u.src and (gate is None or gate(u)):
                push(u)
                push(None)
                for s in u.src[::-1]:
                    if s not in seen:
                        push(s)
            else:
                order.append(u)
    return order


def _toposort_shallow(roots: Iterable[UOp], kept: dict[UOp, list[UOp]]) -> list[UOp]:
    """The same order by recursion, in half the time."""
    order: dict[UOp, None] = {}
    for u in roots:
        if u not in order:
            _visit(u, order, kept)
    return list(order)


def _visit(u: UOp, order: dict[UOp, None], kept: dict[UOp, list[UOp]]) -> None:
    """Put what is below `u` behind the rest; where an order was kept, what of it is new, which is what a visit would find."""
    src: Iterable[UOp] = u.src
    if len(u.src) >= MANY:
        src = dict.fromkeys(u.src)
        if u.spelt is not None:
            order.update(src)
            src = ()
    for s in src:
        if s not in order:
            if not s.src:
                order[s] = None
            elif s in kept:
                order.update(dict.fromkeys(kept[s]))
            else:
                _visit(s, order, kept)
    order[u] = None


def users(order: Iterable[UOp]) -> dict[UOp, list[UOp]]:
    """The users of every node among `order`, in order, a user once per use."""
    found: dict[UOp, list[UOp]] = {}
    for u in order:
        found.setdefault(u, [])
        for s in u.src:
            found.setdefault(s, []).append(u)
    return found


def substitute(root: UOp, replacement: dict[UOp, UOp]) -> UOp:
    """`root` with each key of `replacement` replaced, whatever that has for sources; iterative."""
    done = {u: new for u, new in replacement.items() if new is not u}
    if not done:
        return root
    for u in toposort(root):
        if not done.keys().isdisjoint(u.src) and u not in replacement:
            done[u] = UOp(u.op, tuple([done.get(s, s) for s in u.src]), u.arg, u.tag)
    return done.get(root, root)
