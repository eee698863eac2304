"""The Tensor's core: one node, its derived properties, and how operands become nodes.

A Tensor made by moving another one's elements is a view: `assign` through it writes to the Tensors it was made from, as long as
they are in use. Realized data is never changed in place: an assignment gives these Tensors new nodes, and every node made before,
of an older view too, keeps the value of its time.
"""

from __future__ import annotations

import math
import weakref
from typing import Any, NamedTuple, Self

import numpy as np

from uops.compiler.tensor import storage
from uops.compiler.tensor.checks import IndexCheck, IndexOutOfRange, attach, checks_of, drop_assignments
from uops.compiler.tensor.dtypes import DTypeLike, as_dtype, weak
from uops.compiler.tensor.faults import fault, require_axes, spell, whole
from uops.compiler.tensor.realize import compute
from uops.spec.errors import SpecIndexError, SpecTypeError
from uops.spec.ir import build as B
from uops.spec.ir.dtypes import DType, promote
from uops.spec.ir.node import UOp
from uops.spec.ir.ops import Op
from uops.spec.ir.scope import VIEWS

Shape = tuple[int, ...]
#: What stands beside a Tensor in an expression: a Tensor, an array, or a weak Python number.
Operand = Any


class Step(NamedTuple):
    """One movement op without its first source; None stands for a step after which elements are no memory."""

    op: Op
    src: tuple[UOp, ...]
    arg: Any
    checks: tuple[IndexCheck, ...] = ()
    tag: Any = None

    @classmethod
    def of(cls, u: UOp) -> Step | None:
        return cls(u.op, u.src[1:], u.arg, checks_of(u), u.tag) if u.op in VIEWS else None

    def replay_on(self, u: UOp) -> UOp:
        """The step again, from node `u`."""
        return attach(UOp(self.op, (u, *self.src), self.arg, self.tag), self.checks)


#: How a view is made from a Tensor in use: the first Tensor of a chain comes first.
Link = tuple["weakref.ref[Core]", tuple[Step | None, ...]]


class Core:
    """A lazy value. `uop` is its node; `shape` holds ints."""

    __slots__ = ("__weakref__", "_links", "uop")
    __array_ufunc__ = None  # NumPy gives way: `array + tensor` is a Tensor

    uop: UOp
    _links: tuple[Link, ...]

    @classmethod
    def of(cls, uop: UOp) -> Self:
        """The Tensor of a node."""
        t = object.__new__(cls)
        t.uop, t._links = uop, ()
        return t

    def _view(self, uop: UOp, *steps: Step | None) -> Self:
        """A Tensor of `uop`, which moves this one's elements as `steps` do. A method that moves nothing gives another Tensor, too:
        else it would depend on shapes what an assignment reaches."""
        t = self.of(uop)
        t._links = (*((r, (*before, *steps)) for r, before in self._links if r() is not None), (weakref.ref(self), steps))
        return t

    def _moved(self, uop: UOp) -> Self:
        """A Tensor of a movement op on this one's node."""
        return self._view(uop, Step.of(uop))

    @property
    def shape(self) -> Shape:
        return self.uop.shape

    @property
    def dtype(self) -> DType:
        return self.uop.dtype

    @property
    def device(self) -> str:
        """Where the value lies; a constant, which lies nowhere, is said to be on the CPU."""
        return str(self.uop.device or "CPU")

    @property
    def ndim(self) -> int:
        return len(self.shape)

    def numel(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)

    def size(self, axis: int | None = None) -> Shape | int:
        """The shape, or one extent of it."""
        return self.shape if axis is None else self.shape[self._axis("size", axis)]

    # Realization

    def realize(self, *others: Core, backend: str | None = None, unchecked: bool | None = None) -> Self:
        """Compute this Tensor and `others` now, by one program, and hold their arrays from then on. Returns this Tensor.

        Raises SpecIndexError, an IndexError, where an index that is data or computed is out of range; nothing is held then. Where
        it is an assignment's outside of a @function, these Tensors are from then on as if it had not been made. With `unchecked`
        nobody looks (R163); `use` says what holds where it is None.
        """
        tensors: tuple[Core, ...] = (self, *(self._require_tensor("what is realized", t) for t in others))
        for t in tensors:
            t.uop = storage.known(t.uop) or t.uop
        if backend is not None and not isinstance(backend, str):
            raise fault("realize", None, f"a backend is named, got {spell(backend)}", SpecTypeError)
        missing = [u for u in dict.fromkeys(t.uop for t in tensors) if storage.value_of(u) is None]
        if missing:
            try:
                computed = compute(missing, backend, unchecked)
            except IndexOutOfRange as e:
                for t in tensors:
                    t.uop = drop_assignments(t.uop, e.check)
                raise
            held = {u: storage.remember(u, np.asarray(a).reshape(u.shape), c) for u, (a, c) in zip(missing, computed, strict=True)}
            for t in tensors:
                t.uop = held.get(t.uop, t.uop)
        return self

    @property
    def is_realized(self) -> bool:
        """Whether the value needs no computation."""
        return storage.value_of(storage.known(self.uop) or self.uop) is not None

    def _array(self) -> storage.Array:
        """The value as a read-only array; realizes."""
        found = storage.value_of(self.realize().uop)
        assert found is not None
        return found

    # Assignment

    def assign(self, value: Operand) -> Self:
        """Write `value`, broadcast to this shape, into this Tensor, or through a view into the Tensor it views.

        Spec: Store into fresh memory that holds the old contents, then After; this Tensor's node is new, and nodes made before keep
        their values. The value must have this dtype, or one that promotes to it.
        """
        source = self._assigned(value)
        owners: list[Core] = [owner for owner in (r() for r, _ in self._links) if owner is not None]
        if not owners:
            self.uop = B.assign(storage.shaped(B.buffer(self.numel(), self.dtype), self.shape), source)
            return self
        root, old = owners[0], _copied(owners[0].uop)
        root.uop = B.after(old, B.store(self._upon(root, old), source))
        views: list[Core] = [*owners[1:], self]
        for view in views:
            view.uop = view._upon(root, root.uop)
        return self

    def _upon(self, root: Core, uop: UOp) -> UOp:
        """This view of `root`, made of another node of it."""
        for step in next(steps for r, steps in self._links if r() is root):
            if step is None:
                raise fault("assign", "STORE.C2", f"this Tensor of shape {self.shape} is a view with padding or repetition")
            uop = step.replay_on(uop)
        return uop

    def _assigned(self, value: Operand) -> UOp:
        """`value` as a node of exactly this dtype and shape."""
        source = self._operand(value)
        if promote(self.dtype, source.dtype) is not self.dtype:
            raise fault(
                "assign", "STORE.C3", f"a value of {source.dtype} for a Tensor of {self.dtype}; cast it first", SpecTypeError
            )
        node = self.of(B.cast(source, self.dtype))._broadcast("assign", "STORE.C4", self.shape)
        return node.uop

    # Operands

    def _operand(self, value: Operand, like: DType | None = None) -> UOp:
        """The node of an operand; a Python number is weak beside `like`, which defaults to this dtype."""
        if isinstance(value, Core):
            return value.uop
        if isinstance(value, (bool, int, float)) and not isinstance(value, np.generic):
            return weak(value, like or self.dtype)
        if isinstance(value, (np.ndarray, np.generic)):
            return storage.leaf(np.array(value))
        if isinstance(value, UOp):
            return value
        raise fault("", None, f"an operand is a Tensor, an array or a number, got {type(value).__name__}", SpecTypeError)

    def _require_tensor(self, what: str, value: Any) -> Self:
        """Return an argument that is a Tensor. Raises SpecTypeError for anything else."""
        is_tensor: bool = isinstance(value, Core)
        if not is_tensor:
            raise fault("", None, f"{what} is a Tensor, got {type(value).__name__}", SpecTypeError)
        tensor: Self = value
        return tensor

    def _broadcast(self, method: str, claim: str, shape: Shape) -> Self:
        """This Tensor in `shape`: new axes in front, axes of 1 repeated."""
        old = self.shape
        if old == shape:
            return self._view(self.uop)
        require_axes(method, len(shape))
        aligned = (1,) * (len(shape) - len(old)) + old
        if len(old) > len(shape) or any(n not in (1, m) for n, m in zip(aligned, shape)):
            raise fault(method, claim, f"shape {old} does not broadcast to {shape}")
        return self._moved(B.expand(storage.shaped(self.uop, aligned), shape))

    def cast(self, dtype: DTypeLike) -> Self:
        """Convert each element (R15)."""
        wanted = as_dtype(dtype)
        return self.of(B.cast(self.uop, wanted))

    def _axis(self, method: str, axis: int, claim: str = "REDUCE.C3") -> int:
        """A non-negative axis."""
        given = axis if type(axis) is int else whole(axis)
        if not -self.ndim <= given < self.ndim:
            raise fault(method, claim, f"axis {spell(axis)} of shape {self.shape}", SpecIndexError)
        return given % self.ndim

    def _vector_axis(self, method: str, axis: int) -> int | None:
        """A non-negative axis; None for 0 and -1 of a Tensor of shape (), which counts as a vector of one element."""
        if not self.ndim and whole(axis) in (0, -1):
            return None
        return self._axis(method, axis)

    def _axes(self, method: str, axis: int | tuple[int, ...] | list[int] | None) -> tuple[int, ...]:
        """Distinct non-negative axes in order; all of them for None."""
        if axis is None:
            return tuple(range(self.ndim))
        axes = [self._axis(method, a) for a in (axis if isinstance(axis, (tuple, list)) else (axis,))]
        if len(set(axes)) < len(axes):
            raise fault(method, "REDUCE.C3", f"axes {tuple(axes)} of shape {self.shape} repeat")
        return tuple(sorted(axes))


def _copied(u: UOp) -> UOp:
    """Fresh memory with the contents of `u`, as a reference of its shape."""
    return B.assign(storage.shaped(B.buffer(math.prod(u.shape), u.dtype), u.shape), u)
