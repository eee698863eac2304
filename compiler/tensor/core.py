"""The Tensor's core: one node, its derived properties, and the conversion of operands to nodes.

A Tensor made by moving another one's elements is a view: `assign` through it writes to the Tensors it was made from, while they
are in use. Realized data is never changed in place. An assignment gives these Tensors new nodes, and every older node, also of an
older view, keeps its value.
"""

from __future__ import annotations

import math
import weakref
from typing import Any, NamedTuple, Self

import numpy as np

from uops.compiler.ir.devices import HOST
from uops.compiler.tensor import storage
from uops.compiler.tensor.checks import (
    IndexCheck,
    IndexOutOfRange,
    attach_unproved_checks_or_tag,
    checks_of,
    undo_assignments_of_failed_check,
)
from uops.compiler.tensor.dtypes import DTypeLike, as_dtype, make_constant_in_dtype_if_it_fits
from uops.compiler.tensor.faults import fault, format_for_error, require_axes, require_integer_of_at_most_64_bits
from uops.compiler.tensor.history import has_gradient_path_to_tracked_tensor, is_differentiating
from uops.compiler.tensor.realize import compute_in_one_program
from uops.spec.errors import SpecIndexError, SpecTypeError
from uops.spec.ir import build as B
from uops.spec.ir.args import Device
from uops.spec.ir.dtypes import DType, promote
from uops.spec.ir.node import UOp
from uops.spec.ir.ops import Op
from uops.spec.ir.scope import VIEWS

Shape = tuple[int, ...]
#: An operand of an expression: a Tensor, an array, or a weak Python number.
Operand = Any


class MovementStep(NamedTuple):
    """One movement op without its first source. In a chain, None marks a step after which elements are no memory."""

    op: Op
    src: tuple[UOp, ...]
    arg: Any
    checks: tuple[IndexCheck, ...] = ()
    tag: Any = None

    @classmethod
    def of(cls, u: UOp) -> MovementStep | None:
        """Return the step that node `u` does, or None if it is no view."""
        return cls(u.op, u.src[1:], u.arg, checks_of(u), u.tag) if u.op in VIEWS else None  # sources after the viewed one

    def replay_on(self, u: UOp) -> UOp:
        """Return the step applied to node `u`."""
        return attach_unproved_checks_or_tag(UOp(self.op, (u, *self.src), self.arg, self.tag), self.checks)


#: A Tensor in use from which a view was made, and the steps; the first Tensor of a chain comes first.
ViewLink = tuple["weakref.ref[LazyTensorBase]", tuple[MovementStep | None, ...]]


class LazyTensorBase:
    """A lazy value. `uop` is its node; extents in `shape` are ints.

    `_array` may hold the array of a realized value, in its shape. A Tensor that depends on a tracked one has none, as
    `requires_grad_` makes a new node. A Tensor that a compiled call gives has only that: its node is made when it is read first.
    """

    __slots__ = ("__weakref__", "_array", "_links", "uop")
    __array_ufunc__ = None  # NumPy gives way: `array + tensor` is a Tensor

    uop: UOp
    _array: storage.Array | None
    _links: tuple[ViewLink, ...]

    @classmethod
    def of(cls, uop: UOp) -> Self:
        """Return the Tensor of a node."""
        t = object.__new__(cls)
        t.uop, t._links, t._array = uop, (), None
        return t

    def __getattr__(self, name: str) -> Any:
        """Make the node of a Tensor that has only an array."""
        if name != "uop":
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}", name=name, obj=self)
        array = self._array
        assert array is not None
        self.uop = node = storage.make_computed_leaf(array, as_dtype(array.dtype), array.shape)
        return node

    def _set_node(self, uop: UOp) -> None:
        """Make `uop` the node of this Tensor from now on."""
        self.uop, self._array = uop, None

    def _wrap_as_view_of_self(self, uop: UOp, *steps: MovementStep | None) -> Self:
        """Return a Tensor of `uop`, which moves this one's elements as `steps` do.

        A method that moves nothing returns a new Tensor, too. Otherwise the effect of an assignment would depend on shapes.
        """
        t = self.of(uop)
        inherited = ((r, (*before, *steps)) for r, before in self._links if r() is not None)
        t._links = (*inherited, (weakref.ref(self), steps))
        return t

    def _make_movement_view(self, uop: UOp) -> Self:
        """Return the view that a movement op on this Tensor's node makes."""
        return self._wrap_as_view_of_self(uop, MovementStep.of(uop))

    @property
    def shape(self) -> Shape:
        """The extent of each axis."""
        return self.uop.shape

    @property
    def dtype(self) -> DType:
        """The dtype of the elements."""
        return self.uop.dtype

    @property
    def device(self) -> Device:
        """The device of the value, or the tuple of its devices; a constant, which is nowhere, counts as on the CPU."""
        return self.uop.device or HOST

    @property
    def sharded_axis(self) -> int | None:
        """The axis that several devices share, a part each; None where each of them holds the whole value (R74, axis)."""
        return self.uop.axis

    @property
    def ndim(self) -> int:
        """The number of axes."""
        return len(self.shape)

    def numel(self) -> int:
        """Return the number of elements."""
        return math.prod(self.shape)

    def size(self, axis: int | None = None) -> Shape | int:
        """Return the shape, or the extent of one axis."""
        return self.shape if axis is None else self.shape[self._normalize_axis("size", axis)]

    # Realization

    def realize(self, *others: LazyTensorBase, backend: str | None = None, unchecked: bool | None = None) -> Self:
        """Compute this Tensor and `others` now, by one program, and hold their arrays from then on. Returns this Tensor.

        Raises SpecIndexError, an IndexError, if an index that is data or computed is out of range; nothing is held then. If the
        index is that of an assignment outside of a @function, these Tensors continue as if it had not been made. With `unchecked`
        indices are not checked (R163: indices of Tensors); None means the setting of `use`.
        """
        tensors: tuple[LazyTensorBase, ...] = (self, *(self._require_tensor("a value to realize", t) for t in others))
        if backend is not None and not isinstance(backend, str):
            raise fault("realize", None, f"expected the name of a backend, got {format_for_error(backend)}", SpecTypeError)
        missing = [u for u in dict.fromkeys(t.uop for t in tensors) if storage.realized_value_of(u) is None]
        leaves: dict[UOp, UOp] = {}
        constants: set[UOp] = set()
        if missing:
            try:
                computed = compute_in_one_program(missing, backend, unchecked)
            except IndexOutOfRange as e:
                for t in tensors:
                    t._set_node(undo_assignments_of_failed_check(t.uop, e.check))
                raise
            leaves = {
                u: storage.make_leaf_and_memoize_by_realized_node(u, np.asarray(a).reshape(u.shape), c, inputs)
                for u, (a, c, inputs) in zip(missing, computed, strict=True)
            }
            constants = {u for u, (_, is_constant, _) in zip(missing, computed, strict=True) if is_constant}
        for t in tensors:
            if t.uop in constants or not (is_differentiating() or has_gradient_path_to_tracked_tensor(t.uop)):
                t._set_node(leaves.get(t.uop) or storage.find_realized_leaf(t.uop) or t.uop)
        return self

    @property
    def is_realized(self) -> bool:
        """True if the value needs no computation."""
        return storage.realized_value_of(self.uop) is not None

    def _realize_array(self) -> storage.Array:
        """Return the value as a read-only array; realizes."""
        array = storage.realized_value_of(self.realize().uop)
        assert array is not None
        return array

    # Assignment

    def assign(self, value: Operand) -> Self:
        """Write `value`, broadcast to this shape, into this Tensor, or through a view into the Tensor it views.

        Spec: Store into fresh memory that holds the old contents, then After. This Tensor's node is new, and older nodes keep
        their values. The value must have this dtype, or one that promotes to it.
        """
        source = self._cast_and_broadcast_assigned_value(value)
        owners: list[LazyTensorBase] = [owner for owner in (r() for r, _ in self._links) if owner is not None]
        if not owners:
            self._set_node(B.assign(_make_empty_buffer_like(self.uop), source))
            return self
        root, old = owners[0], _copy_to_fresh_buffer(owners[0].uop)
        root._set_node(B.after(old, B.store(self._replay_view_on(root, old), source)))
        views: list[LazyTensorBase] = [*owners[1:], self]
        for view in views:
            view._set_node(view._replay_view_on(root, root.uop))
        return self

    def _replay_view_on(self, root: LazyTensorBase, new_node_of_root: UOp) -> UOp:
        """Return this view of `root`, made from another node of it. Raises SpecValueError if the view has padding or repetition."""
        for step in next(steps for r, steps in self._links if r() is root):
            if step is None:
                raise fault(
                    "assign",
                    "STORE.C2",
                    f"expected elements that are stored once, got a view with padding or repetition, of shape {self.shape}",
                )
            new_node_of_root = step.replay_on(new_node_of_root)
        return new_node_of_root

    def _cast_and_broadcast_assigned_value(self, value: Operand) -> UOp:
        """Return `value` as a node of exactly this dtype and shape."""
        source = self._convert_operand(value)
        if promote(self.dtype, source.dtype) is not self.dtype:
            raise fault("assign", "STORE.C3", f"expected a value of {self.dtype}, got {source.dtype}; cast it first", SpecTypeError)
        node = self.of(B.cast(source, self.dtype))._broadcast("assign", "STORE.C4", self.shape)
        return node.uop

    # Operands

    def _convert_operand(self, value: Operand, like: DType | None = None) -> UOp:
        """Return the node of an operand. A Python number is weak beside `like`, by default this dtype."""
        if isinstance(value, LazyTensorBase):
            return value.uop
        if isinstance(value, (bool, int, float)) and not isinstance(value, np.generic):
            return make_constant_in_dtype_if_it_fits(value, like or self.dtype)
        if isinstance(value, (np.ndarray, np.generic)):
            return storage.make_leaf_on_contiguous_memory_or_copy(np.array(value))
        if isinstance(value, UOp):
            return value
        raise fault("", None, f"expected a Tensor, an array or a number, got {type(value).__name__}", SpecTypeError)

    def _require_tensor(self, name: str, value: Any) -> Self:
        """Return an argument that is a Tensor. Raises SpecTypeError for anything else."""
        is_tensor: bool = isinstance(value, LazyTensorBase)
        if not is_tensor:
            raise fault("", None, f"expected a Tensor for {name}, got {type(value).__name__}", SpecTypeError)
        tensor: Self = value
        return tensor

    def _broadcast(self, method: str, claim: str, shape: Shape) -> Self:
        """Broadcast this Tensor to `shape`: new axes in front, axes of extent 1 repeated."""
        old = self.shape
        if old == shape:
            return self._wrap_as_view_of_self(self.uop)
        require_axes(method, len(shape))
        aligned = (1,) * (len(shape) - len(old)) + old
        if len(old) > len(shape) or any(n not in (1, m) for n, m in zip(aligned, shape)):
            raise fault(method, claim, f"shape {old} does not broadcast to {shape}")
        return self._make_movement_view(B.expand(storage.reshape_node(self.uop, aligned), shape))

    def cast(self, dtype: DTypeLike) -> Self:
        """Convert each element to another dtype (R15: Cast)."""
        d = as_dtype(dtype)
        return self.of(B.cast(self.uop, d))

    def _normalize_axis(self, method: str, axis: int, claim: str = "REDUCE.C3") -> int:
        """Return a non-negative axis. Raises SpecIndexError if it is out of range."""
        number = axis if type(axis) is int else require_integer_of_at_most_64_bits(axis)
        if not -self.ndim <= number < self.ndim:
            raise fault(method, claim, f"axis {format_for_error(axis)} is out of range for shape {self.shape}", SpecIndexError)
        return number % self.ndim

    def _normalize_axis_unless_scalar(self, method: str, axis: int) -> int | None:
        """Return a non-negative axis; None for 0 and -1 of a Tensor of shape (), which counts as a vector of one element."""
        if not self.ndim and require_integer_of_at_most_64_bits(axis) in (0, -1):
            return None
        return self._normalize_axis(method, axis)

    def _normalize_axes(self, method: str, axis: int | tuple[int, ...] | list[int] | None) -> tuple[int, ...]:
        """Return distinct non-negative axes in order; all of them for None."""
        if axis is None:
            return tuple(range(self.ndim))
        axes = [self._normalize_axis(method, a) for a in (axis if isinstance(axis, (tuple, list)) else (axis,))]
        if len(set(axes)) < len(axes):
            raise fault(method, "REDUCE.C3", f"expected distinct axes of shape {self.shape}, got {tuple(axes)}")
        return tuple(sorted(axes))


def _copy_to_fresh_buffer(u: UOp) -> UOp:
    """Return fresh memory with the contents of `u`, as a reference of its shape."""
    return B.assign(_make_empty_buffer_like(u), u)


def _make_empty_buffer_like(u: UOp) -> UOp:
    """Return fresh memory for a value like `u`, as a reference of its shape, on the devices of `u`."""
    size, device, axis = math.prod(u.shape), u.device or HOST, u.axis
    if not isinstance(device, tuple):
        return storage.reshape_node(B.buffer(size, u.dtype, device), u.shape)
    if axis is None:
        detail = f"expected a Tensor that is sharded over {device}, got one that is whole on each; shard it first"
        raise fault("assign", "STORE.C1", detail)
    shape = (u.shape[axis], *u.shape[:axis], *u.shape[axis + 1 :])  # a Buffer is sharded along its first axis (R73)
    memory = storage.reshape_node(B.buffer(size // len(device), u.dtype, device), shape)
    return memory if axis == 0 else B.permute(memory, (*range(1, axis + 1), 0, *range(axis + 1, len(shape))))
