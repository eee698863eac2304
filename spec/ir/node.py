"""The graph node `UOp(op, src, arg, tag)`, interned, with five derived properties, and traversals of graphs.

Nodes with the same op, sources, arg and tag are the same object, so they are compared with `is` and hash by identity. `dtype` and
`shape` are derived on construction, `device`, `min_max` and `axis` on first use, by the rules in `uops.spec.ir.derive`. Traversals
are iterative where Python's stack would limit the depth. Construction checks nothing; `uops.spec.verify.verifier` does.
`uops.spec.ir.build` has the builders of well-typed nodes.
"""

from __future__ import annotations

import threading
import weakref
from _weakref import _remove_dead_weakref  # type: ignore[attr-defined] # the base of the standard library's weak dictionaries
from collections import defaultdict
from collections.abc import Callable, Container, Iterable, Set
from dataclasses import dataclass, field
from typing import Any

from uops.spec.errors import SpecError, SpecValueError
from uops.spec.ir.args import Arg, Device
from uops.spec.ir.dtypes import DType
from uops.spec.ir.operands import Operands
from uops.spec.ir.ops import Op

#: An extent of a shape: a Python int, or an index expression where it is symbolic (R48, symbolic sizes).
Dim = Any
#: Inclusive bounds of a value's elements.
MinMax = tuple[float, float]

#: The value of a derived property's slot before its first use. Hot code may read the slot `_min_max` directly, at a fifth of the
#: cost of the property. `dtype` and `shape` are plain slots, except on ill-formed nodes.
UNSET: Any = object()
#: The maximum rank of a value, that of NumPy's arrays (R65, rank).
MOST_AXES = 64
_interned: dict[tuple[Any, ...], _InternedRef] = {}
_new = object.__new__
#: The hook that is called with each new node while `uops.spec.ir.origins` records.
created: Callable[[UOp], None] | None = None


class _InternedRef(weakref.ref["UOp"]):
    """A weak reference from the intern table to a node; `key` is the node's key in the table."""

    __slots__ = ("key",)

    key: tuple[Any, ...]


def _drop_interned(
    ref: _InternedRef, remove: Any = _remove_dead_weakref, table: dict[tuple[Any, ...], _InternedRef] = _interned
) -> None:
    """Remove a dead node from the intern table.

    An equal node may have taken its key since. The check that the entry is dead and its removal are one atomic step.
    """
    remove(table, ref.key)


class _NodeStorage(Operands):
    """The slots of a node. A node has this class during construction, while its slots are assigned."""

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


class UOp(_NodeStorage):
    """An immutable, interned node of a graph. `Operands` names its sources."""

    __slots__ = ()

    # Both raise SpecError on an ill-formed node. The extents of a shape are ints or index expressions.
    dtype: DType = _NodeStorage.__dict__["_dtype"]
    shape: tuple[Dim, ...] = _NodeStorage.__dict__["_shape"]

    def __new__(cls, op: Op, src: Iterable[UOp] = (), arg: Arg = None, tag: object = None) -> UOp:
        if src.__class__ is not tuple:
            src = tuple(src)
        key = (op, src, arg, tag)
        ref = _interned.get(key)
        if ref is not None:
            existing = ref()
            if existing is not None:
                return existing
        node: Any = _new(_NodeStorage)
        node.op = op
        node.src = src
        node.arg = arg
        node.tag = tag
        node._device = node._min_max = node._axis = node._spelt = UNSET
        try:
            node._dtype = _dtypes[op](node)
            shape = node._shape = _shapes[op](node)
            if len(shape) > MOST_AXES:
                raise SpecValueError(_describe_rank_limit(len(shape)))
            node.__class__ = UOp  # from here on it is immutable
        except _ILL_FORMED_ERRORS:
            node._dtype = node._shape = UNSET
            node.__class__ = IllFormedUOp
        ref = _InternedRef(node, _drop_interned)
        ref.key = key
        while (other := _interned.setdefault(key, ref)) is not ref:
            existing = other()
            if existing is not None:  # another thread was faster
                return existing
            _drop_interned(other)
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
        """The device of a value, the n-tuple of its devices, or None."""
        v = self._device
        return v if v is not UNSET else _compute_and_store_property(self, "_device")  # type: ignore[no-any-return]

    @property
    def min_max(self) -> MinMax | None:
        """Inclusive bounds of every non-NaN element (R70 and R71, min_max); None for void."""
        v = self._min_max
        return v if v is not UNSET else _compute_and_store_property(self, "_min_max")  # type: ignore[no-any-return]

    @property
    def axis(self) -> int | None:
        """The sharded axis of a value on several devices (R73 to R76), else None."""
        v = self._axis
        return v if v is not UNSET else _compute_and_store_property(self, "_axis")  # type: ignore[no-any-return]

    def replace(self, *, op: Op | None = None, src: Iterable[UOp] | None = None, arg: Any = UNSET, tag: Any = UNSET) -> UOp:
        """Return a copy of the node in which the given fields are replaced."""
        return UOp(
            self.op if op is None else op,
            self.src if src is None else src,
            self.arg if arg is UNSET else arg,
            self.tag if tag is UNSET else tag,
        )

    @property
    def constants_of_stack(self) -> tuple[int, ...] | None:
        """The values of a Stack whose elements are all Consts, such as a shape operand (R40); None for any other node."""
        v = self._spelt
        if v is UNSET:
            v = _values_if_all_consts(self.src) if self.op is Op.STACK else None
            _set(self, "_spelt", v)
        return v  # type: ignore[no-any-return]

    @property
    def const(self) -> Any:
        """The value of a Const node; raises SpecError on any other node."""
        if self.op is not Op.CONST:
            raise SpecError(f"{self!r} is not a Const")
        return self.arg.value


class IllFormedUOp(UOp):
    """A node whose dtype or shape could not be derived on construction; reading either raises SpecError."""

    __slots__ = ()

    @property
    def dtype(self) -> DType:  # type: ignore[override]
        """The dtype, if its rule succeeds by itself."""
        v = self._dtype
        return v if v is not UNSET else _compute_and_store_property(self, "_dtype")  # type: ignore[no-any-return]

    @property
    def shape(self) -> tuple[Dim, ...]:  # type: ignore[override]
        """The shape, if its rule succeeds by itself."""
        v = self._shape
        return v if v is not UNSET else _compute_and_store_property(self, "_shape")  # type: ignore[no-any-return]


def _values_if_all_consts(elements: tuple[UOp, ...]) -> tuple[int, ...] | None:
    """Return the values of a Stack's elements if all are Consts, else None, also for a Const without a value or with sources."""
    const = Op.CONST
    try:
        if len(elements) > 1 and elements[0] is elements[-1] and elements.count(elements[0]) == len(elements):
            first = elements[0]
            return (first.arg.value,) * len(elements) if first.op is const and not first.src else None
        values = []
        for s in elements:
            if s.op is not const or s.src:
                return None
            values.append(s.arg.value)
        return tuple(values)
    except AttributeError:  # the arg of an ill-formed Const
        return None


_SLOTS = ("_dtype", "_shape", "_device", "_min_max", "_axis")
#: A rule that derives one property of a node from its arg and its sources' properties.
Rule = Callable[[UOp], Any]
#: Slot -> the rule of each op; filled by `uops.spec.ir.derive`.
RULES: dict[str, dict[Op, Rule]] = {slot: {} for slot in _SLOTS}


_set = object.__setattr__
#: Exceptions that a rule may raise on an ill-formed node, besides SpecError.
_DERIVATION_ERRORS = (IndexError, KeyError, TypeError, ValueError, AttributeError, ZeroDivisionError, OverflowError)
_ILL_FORMED_ERRORS = (SpecError, *_DERIVATION_ERRORS)
_dtypes, _shapes = RULES["_dtype"], RULES["_shape"]


def rank_limit_fault(u: UOp) -> str | None:
    """Return what is wrong if the shape of `u` would have more than `MOST_AXES` axes, else None."""
    if u.__class__ is UOp:
        return None
    try:
        n = len(_shapes[u.op](u))
    except _ILL_FORMED_ERRORS:
        return None
    return _describe_rank_limit(n) if n > MOST_AXES else None


def _describe_rank_limit(n: int) -> str:
    return f"a shape of {n} axes, where a value has at most {MOST_AXES} (R65)"


def _require_rank_limit(shape: tuple[Dim, ...]) -> None:
    """Raise SpecValueError for a shape with more than `MOST_AXES` axes."""
    if len(shape) > MOST_AXES:
        raise SpecValueError(_describe_rank_limit(len(shape)))


def _compute_and_store_property(root: UOp, slot: str) -> Any:
    """Compute and store one property of `root`.

    A rule reads its sources' properties, which computes them recursively. A graph too deep for that is walked iteratively.
    """
    try:
        value = RULES[slot][root.op](root)
        if slot == "_shape":
            _require_rank_limit(value)
    except RecursionError:
        return _compute_and_store_property_iteratively(root, slot)
    except _DERIVATION_ERRORS:
        value = _apply_rule_or_raise_spec_error(root, slot)  # raises SpecError with the reason
    _set(root, slot, value)
    return value


def _apply_rule_or_raise_spec_error(u: UOp, slot: str) -> Any:
    """Apply the rule of one property; raises SpecError whatever the rule raises."""
    try:
        value = RULES[slot][u.op](u)
        if slot == "_shape":
            _require_rank_limit(value)
        return value
    except SpecError:
        raise
    except _DERIVATION_ERRORS as e:
        raise SpecError(f"cannot derive {slot[1:]} of {u!r}: {type(e).__name__}: {e}") from e


def _compute_and_store_property_iteratively(root: UOp, slot: str) -> Any:
    """Compute and store one property of `root` and of every node below it that lacks it, sources first."""
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
        object.__setattr__(u, slot, _apply_rule_or_raise_spec_error(u, slot))
        stack.pop()
    return get(root, slot)


@dataclass(slots=True)
class TraversalCache:
    """Memoized traversals, by root.

    `orders` has topological orders, `nodes_by_op` the nodes of each op in them. `open_ranges` has the ranges in whose loops a node
    is (`uops.spec.ir.scope`). `ops_below` has the ops in an order.
    """

    orders: dict[UOp, list[UOp]] = field(default_factory=dict)
    nodes_by_op: dict[UOp, dict[Op, list[UOp]]] = field(default_factory=dict)
    open_ranges: dict[UOp, frozenset[UOp]] = field(default_factory=dict)
    ops_below: dict[UOp, Set[Op]] = field(default_factory=dict)


class _ActiveTraversalCache(threading.local):
    """The cache that this thread uses; None unless `uops.compiler.rewrite.lowering_cache` provides one."""

    cache: TraversalCache | None = None


traversals = _ActiveTraversalCache()
#: The number of sources from which traversals remove duplicates first. Such a node is mostly a vector of equal lanes or constants.
MANY = 5
#: The maximum number of memoized orders; when it is reached, all are dropped.
_MOST_ORDERS = 512


def toposort(*roots: UOp, gate: Callable[[UOp], bool] | None = None) -> list[UOp]:
    """Return every node reachable from `roots` once, sources before users, in a deterministic order.

    With `gate`, the sources of a node for which gate(node) is false are not entered.
    """
    cache = traversals.cache
    if cache is None or gate is not None or len(roots) != 1:
        return _compute_toposort(roots, gate, {})
    orders = cache.orders
    order = orders.get(roots[0])
    if order is None:
        if len(orders) >= _MOST_ORDERS:
            orders.clear()
        order = orders[roots[0]] = _compute_toposort(roots, None, orders)
    return order[:]


def nodes_with_op(root: UOp, op: Op) -> list[UOp]:
    """Return the nodes of one op at and below `root`, sources before users. The list may be memoized: do not change it."""
    cache = traversals.cache
    if cache is None:
        return [u for u in toposort(root) if u.op is op]
    groups = cache.nodes_by_op.get(root)
    if groups is None:
        if len(cache.nodes_by_op) >= _MOST_ORDERS:
            cache.nodes_by_op.clear()
        groups = _group_by_op(root, cache)
    return groups.get(op, [])


def ops_below(root: UOp) -> Set[Op]:
    """Return the ops of the nodes at and below `root`. The set may be memoized, as topological orders are."""
    cache = traversals.cache
    if cache is None:
        return {u.op for u in toposort(root)}
    ops = cache.ops_below.get(root)
    if ops is None:
        if len(cache.ops_below) >= _MOST_ORDERS:
            cache.ops_below.clear()
        ops = cache.ops_below[root] = {u.op for u in toposort(root)}
    return ops


def _group_by_op(root: UOp, cache: TraversalCache) -> dict[Op, list[UOp]]:
    """Group the nodes at and below `root` by op, and memoize the groups. Those of an End or Sink extend those of its effect."""
    memoized_groups_by_root = cache.nodes_by_op
    pending = [root]
    while (u := pending[-1]).op is Op.END or (u.op is Op.SINK and len(u.src) == 1):
        effect = u.src[0]  # the body of an End, the effect of a Sink
        if effect in memoized_groups_by_root or u in cache.orders:
            break
        pending.append(effect)
    groups: dict[Op, list[UOp]] = {}
    for u in reversed(pending):
        wraps = u.op is Op.END or (u.op is Op.SINK and len(u.src) == 1)
        below = memoized_groups_by_root.get(u.src[0]) if wraps else None  # of its body, or of its effect
        if below is not None and set(u.src[1:]).issubset(below.get(Op.RANGE, ())):  # its ranges
            groups = {**below, u.op: [*below.get(u.op, ()), u]}
        else:
            groups = defaultdict(list)
            for x in toposort(u):
                groups[x.op].append(x)
        memoized_groups_by_root[u] = groups
    return groups


def _compute_toposort(roots: tuple[UOp, ...], gate: Callable[[UOp], bool] | None, known_orders: dict[UOp, list[UOp]]) -> list[UOp]:
    if gate is None:
        try:
            return _toposort_recursively(roots, known_orders)
        except RecursionError:  # too deep for Python's stack
            pass
    seen: set[UOp] = set()
    order: list[UOp] = []
    stack: list[Any] = list(roots[::-1])  # a None lies on top of a node whose sources have been pushed
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


def _toposort_recursively(roots: Iterable[UOp], known_orders: dict[UOp, list[UOp]]) -> list[UOp]:
    """Return the same order by recursion, in half the time; raises RecursionError for deep graphs."""
    order: dict[UOp, None] = {}
    for u in roots:
        if u not in order:
            _visit_postorder(u, order, known_orders)
    return list(order)


def _visit_postorder(u: UOp, order: dict[UOp, None], known_orders: dict[UOp, list[UOp]]) -> None:
    """Append the nodes at and below `u` that `order` lacks, in postorder. A memoized order of a source replaces its visit."""
    src: Iterable[UOp] = u.src
    if len(u.src) >= MANY:
        src = dict.fromkeys(u.src)
        if u.constants_of_stack is not None:
            order.update(src)
            src = ()
    for s in src:
        if s not in order:
            if not s.src:
                order[s] = None
            elif s in known_orders:
                order.update(dict.fromkeys(known_orders[s]))
            else:
                _visit_postorder(s, order, known_orders)
    order[u] = None


def rebuild(root: UOp, change: Callable[[UOp], UOp], only: Container[UOp] | None = None) -> UOp:
    """Return a graph with `change` applied to every node, sources first. Bodies of Calls are part of it.

    With `only`, it is applied to these nodes alone.
    """
    done: dict[UOp, UOp] = {}
    for u in toposort(root):
        src = tuple([done[s] for s in u.src])
        same = u if src == u.src else u.replace(src=src)
        done[u] = change(same) if only is None or u in only else same
    return done[root]


def collect_users(order: Iterable[UOp]) -> dict[UOp, list[UOp]]:
    """Return node -> its users among `order`, in order. A user is listed once per use."""
    users: dict[UOp, list[UOp]] = {}
    for u in order:
        users.setdefault(u, [])
        for s in u.src:
            users.setdefault(s, []).append(u)
    return users


def substitute(root: UOp, replacement: dict[UOp, UOp]) -> UOp:
    """Return `root` with each key of `replacement` replaced by its value; the values are not searched for keys."""
    rebuilt = {u: new for u, new in replacement.items() if new is not u}
    if not rebuilt:
        return root
    for u in toposort(root):
        if not rebuilt.keys().isdisjoint(u.src) and u not in replacement:
            rebuilt[u] = UOp(u.op, tuple(map(rebuilt.get, u.src, u.src)), u.arg, u.tag)
    return rebuilt.get(root, root)
