"""The gradient of a convolution as one sum of products.

The windows of an axis are a view of its repetition: rows of the axis, cut into longer rows, so that each begins later than the
one before. The gradient undoes that, row by row, and adds up the rows. What it adds up is mostly a sum itself, of products of a
cotangent and a weight: `Reduce(views(Reduce(z * w)))`. This module gives the equal `Reduce(views(z) * views(w))`, a sum of products
of windows of z. There the weight depends on the number of a row alone, as in the convolution.

Windows that move by s > 1 elements need two steps more. The elements of z are spread, s apart, and all between them are zeros.
Element s * a + p of the result then adds up z[a - t] * w[s * t + p] over t, as all other products have a factor of zero. So each
*phase* p is the sum for a stride of 1, of every s-th weight. All phases are one product: `w` is cut into rows of s weights.

Both are equal for finite numbers. A zero of the padding meets a weight, or a weight's padding meets a z: NaN if that is not finite.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from uops.spec.ir import build as b
from uops.spec.ir.derive.shape import shape_operand_dims
from uops.spec.ir.node import UOp
from uops.spec.ir.ops import RESHAPING, Op
from uops.spec.ir.sizes import match_axis_groups

_MOVEMENT = RESHAPING - {Op.EXPAND}
#: The ops of the views that spread the elements of an axis.
_SPREAD = [Op.RESHAPE, Op.PAD, Op.RESHAPE, Op.PAD]
Shape = tuple[int, ...]


@dataclass
class _Factor:
    """One factor of a product on its way through views.

    `node` has the rank of the product, and 1 on each axis along which it is repeated. Elements from `support` on are 0, per axis.
    """

    node: UOp
    support: list[int]

    @staticmethod
    def align(u: UOp, shape: Shape) -> _Factor:
        """Return a factor of a product of that shape."""
        while u.op is Op.EXPAND and len(u.shape) == len(u.operand.shape):
            u = u.operand
        return _Factor(b.reshape(u, (*(1,) * (len(shape) - len(u.shape)), *u.shape)), list(shape))

    def move_to_front(self, axes: Sequence[int]) -> None:
        """Move axes to the front, and leave axes of 1 in their places."""
        own, rest = self.node.shape, [k for k in range(len(self.node.shape)) if k not in axes]
        self.node = b.reshape(
            b.permute(self.node, (*axes, *rest)),
            (*(own[a] for a in axes), *(1 if k in axes else n for k, n in enumerate(own))),
        )
        self.support = [*(self.support[a] for a in axes), *(1 if k in axes else n for k, n in enumerate(self.support))]

    def repeats(self, axis: int, extent: int) -> bool:
        """Return True if the factor is the same along an axis of the product, of that extent."""
        return bool(extent != 1 and self.node.shape[axis] == 1)


@dataclass(frozen=True)
class _Skew:
    """Reshape, Shrink and Reshape: `rows` rows of `old` elements become rows of `new`, which begin later and later."""

    axis: int
    rows: int
    old: int
    new: int
    views: tuple[UOp, ...]


@dataclass(frozen=True)
class _StridedSkew:
    """Elements of one axis that become `stride` apart, and then rows that begin one later each.

    The axis has `entries` elements before. `before` counts the steps in front.
    """

    skew: _Skew
    stride: int
    entries: int
    before: int


def sum_products_of_windows(g: UOp, axes: Sequence[int]) -> UOp | None:
    """Return the sum of `g` over `axes`, which become 1, as one sum of products.

    Return None unless `g` undoes windows of a sum of products, all of constant shapes.
    """
    views, reduce = _split_views(g)
    if reduce.op is not Op.REDUCE or reduce.arg.op is not Op.ADD:
        return None
    inner_views, product = _split_views(reduce.operand)
    nodes = (*views, reduce, *inner_views, product)
    if product.op not in (Op.MUL, Op.EXPAND) or not all(isinstance(n, int) and n for u in nodes for n in u.shape):
        return None
    steps = list(_find_skews(views))
    if not any(isinstance(s, _Skew) for s in steps):
        return None
    a, c = product.src if product.op is Op.MUL else (b.const(1, product.dtype), product)
    strided = _match_strided_skew(steps)
    for z, w in ((a, c), (c, a)):
        pair = _Product.align(z, w, product.shape)
        if strided and tuple(axes) == (strided.skew.axis - 1,) and pair.apply([*inner_views, reduce, *steps[: strided.before]]):
            total = _sum_phases(pair, strided)
            if total is not None:
                return b.reshape(total, [1 if k in axes else n for k, n in enumerate(g.shape)])
        pair = _Product.align(z, w, product.shape)
        if pair.apply([*inner_views, reduce, *steps]):
            total = b.reduce(pair.multiply(), Op.ADD, (*range(pair.lead), *(pair.lead + a for a in axes)))
            return b.reshape(total, [1 if k in axes else n for k, n in enumerate(g.shape)])
    return None


def _split_views(u: UOp) -> tuple[list[UOp], UOp]:
    """Return the views through which a value is seen, the innermost first, and that value."""
    views = []
    while u.op in _MOVEMENT:
        views.append(u)
        u = u.operand
    return views[::-1], u


def _find_skews(views: Sequence[UOp]) -> Iterator[UOp | _Skew]:
    """Yield views, operand first, with a _Skew in place of each three that skew an axis."""
    k = 0
    while k < len(views):
        skew = _match_skew(views[k : k + 3])
        yield skew or views[k]
        k += 3 if skew else 1


def _match_skew(views: Sequence[UOp]) -> _Skew | None:
    if [v.op for v in views] != [Op.RESHAPE, Op.SHRINK, Op.RESHAPE]:
        return None
    merge, cut, split = views
    before, after = merge.operand.shape, split.shape
    if len(before) != len(after) or any(shape_operand_dims(cut.offsets)):
        return None
    differing = [k for k, (m, n) in enumerate(zip(before, after)) if m != n]
    if len(differing) != 1 or differing[0] == 0:
        return None
    axis = differing[0]
    rows, old, new = before[axis - 1], before[axis], after[axis]
    whole = (*before[: axis - 1], rows * old, *before[axis + 1 :])
    kept = (*before[: axis - 1], rows * new, *before[axis + 1 :])
    return _Skew(axis, rows, old, new, tuple(views)) if merge.shape == whole and cut.shape == kept and new < old else None


def _match_strided_skew(steps: Sequence[UOp | _Skew]) -> _StridedSkew | None:
    """Match steps that end with Reshape, Pad, Reshape and Pad, which spread the elements of an axis, and a skew of it by one."""
    *_, skew = steps
    spread = steps[-5:-1]
    if not isinstance(skew, _Skew) or skew.old - skew.new != 1 or [getattr(u, "op", None) for u in spread] != _SPREAD:
        return None
    split, between, merge, behind = (u for u in spread if isinstance(u, UOp))
    axis, shape = skew.axis, split.operand.shape
    if len(merge.shape) != len(shape) or any(k != 0 for u in (between, behind) for k in shape_operand_dims(u.offsets)):
        return None
    entries, stride = shape[axis], merge.shape[axis] // shape[axis]
    want = [(*shape[: axis + 1], n, *shape[axis + 1 :]) for n in (1, stride)]
    want += [(*shape[:axis], n, *shape[axis + 1 :]) for n in (entries * stride, skew.old)]
    matches = [u.shape for u in (split, between, merge, behind)] == want
    return _StridedSkew(skew, stride, entries, len(steps) - 5) if matches else None


@dataclass
class _Product:
    """A product on its way through views: two factors, its own shape, and the number of axes in front that a Reduce left.

    Padding is zeros of `carrier`, and of `other` where that varies along the axis.
    """

    carrier: _Factor
    other: _Factor
    full: Shape
    lead: int = 0

    @staticmethod
    def align(carrier: UOp, other: UOp, shape: Shape) -> _Product:
        """Return the product of two nodes, which has that shape."""
        return _Product(_Factor.align(carrier, shape), _Factor.align(other, shape), shape)

    def apply(self, steps: Sequence[UOp | _Skew]) -> bool:
        """Apply the steps to both factors. The axes of a Reduce come first, unreduced. Return False if a step allows no product."""
        for step in steps:
            if isinstance(step, UOp) and step.op is Op.REDUCE:
                axes = step.arg.axes
                self.carrier.move_to_front(axes)
                self.other.move_to_front(axes)
                self.full, self.lead = (*(self.full[a] for a in axes), *step.shape), len(axes)
                continue
            if not all(_apply_step(step, f, self.full, self.lead, f is self.carrier) for f in (self.carrier, self.other)):
                return False
            self.full = (*self.full[: self.lead], *(step.views[-1] if isinstance(step, _Skew) else step).shape)
        return True

    def multiply(self) -> UOp:
        """Return the product."""
        z, w = self.carrier.node, self.other.node
        repeated = [k for k, n in enumerate(self.full) if self.carrier.repeats(k, n) and self.other.repeats(k, n)]
        own = [self.full[k] if k in repeated else n for k, n in enumerate(z.shape)]
        return b.mul(b.expand(z, own) if repeated else z, w)


def _sum_phases(p: _Product, strided: _StridedSkew) -> UOp | None:
    """Return the sum of a product over its rows after the strided skew, phase by phase, with the axes in front summed, too.

    Return None if a row varies with its number in the carrier, or along itself in the other factor. Nor may a row reach into the
    next one, as in `_skew`.
    """
    skew, stride, entries = strided.skew, strided.stride, strided.entries
    axis = p.lead + skew.axis
    row = axis - 1
    if p.carrier.node.shape[row] != 1 or p.other.node.shape[axis] != 1 or stride * (entries - 1) + skew.rows > skew.old:
        return None
    taps, places = -(-skew.rows // stride), -(-skew.new // stride)
    rows = _set_extents(p.carrier.node, {axis: entries})
    padded = b.pad(rows, [0] * len(rows.shape), _with(rows.shape, {axis: places + 1}))
    carrier = _Factor(padded, [*_with(padded.shape, {axis: entries})])
    full = _with(p.full, {row: taps, axis: places + 1})
    if not _skew(_Skew(skew.axis, taps, places + 1, places, ()), carrier, full, p.lead, True):
        return None
    skewed = carrier.node.shape
    windows = b.reshape(carrier.node, (*skewed[: axis + 1], 1, *skewed[axis + 1 :]))
    weights = _set_extents(p.other.node, {row: skew.rows})
    weights = b.pad(weights, [0] * len(weights.shape), _with(weights.shape, {row: taps * stride}))
    weights = b.reshape(weights, (*weights.shape[:row], taps, 1, stride, *weights.shape[axis + 1 :]))
    full = (*p.full[:row], taps, places, stride, *p.full[axis + 1 :])
    phases = _Product(_Factor(windows, list(full)), _Factor(weights, list(full)), full).multiply()
    total = b.reduce(phases, Op.ADD, (*range(p.lead), row))
    kept = (*p.full[p.lead : row], places * stride, *p.full[axis + 1 :])
    return b.shrink(b.reshape(total, kept), [0] * len(kept), _with(kept, {row - p.lead: skew.new}))


def _set_extents(u: UOp, extents: Mapping[int, int]) -> UOp:
    """Repeat a node along those axes that have another extent."""
    shape = _with(u.shape, extents)
    return u if shape == u.shape else b.expand(u, shape)


def _with(shape: Shape, extents: Mapping[int, int]) -> Shape:
    """Return a shape with other extents."""
    return tuple(extents.get(k, n) for k, n in enumerate(shape))


def _apply_step(step: UOp | _Skew, f: _Factor, full: Shape, lead: int, carries_zeros: bool) -> bool:
    """Apply a view of a product of shape `full` to one factor, behind its `lead` axes. Return False if that is not possible."""
    if isinstance(step, _Skew):
        return _skew(step, f, full, lead, carries_zeros)
    if step.op is Op.RESHAPE:
        _reshape(f, full, lead, step.shape)
    elif step.op is Op.PERMUTE:
        order = (*range(lead), *(lead + k for k in step.arg.order))
        f.node, f.support = b.permute(f.node, order), [f.support[k] for k in order]
    elif step.op is Op.FLIP:
        flags = [lead <= k and step.arg.flags[k - lead] and f.node.shape[k] > 1 for k in range(len(full))]
        f.node, f.support = b.flip(f.node, flags), [n if flags[k] else f.support[k] for k, n in enumerate(full)]
    else:
        offsets = [*(0,) * lead, *shape_operand_dims(step.offsets)]
        if not all(isinstance(k, int) for k in offsets):
            return False
        _pad_or_shrink(step.op, f, full, offsets, (*full[:lead], *step.shape), carries_zeros)
    return True


def _pad_or_shrink(op: Op, f: _Factor, full: Shape, offsets: Sequence[int], shape: Shape, carries_zeros: bool) -> None:
    """Pad or shrink a factor to `shape`. Along an axis on which it is repeated, only the one that carries zeros is padded."""
    changed = [k for k, n in enumerate(full) if n != shape[k]]
    own: Shape = f.node.shape
    if op is Op.PAD and carries_zeros:
        own = tuple(n if k in changed else own[k] for k, n in enumerate(full))
        f.node = b.expand(f.node, own) if own != f.node.shape else f.node
        moved = changed
    else:
        moved = [k for k in changed if own[k] != 1]
    target = tuple(shape[k] if k in moved else n for k, n in enumerate(own))
    at = [offsets[k] if k in moved else 0 for k in range(len(full))]
    if moved:
        f.node = b.pad(f.node, at, target) if op is Op.PAD else b.shrink(f.node, at, target)
    for k in changed:
        if op is Op.PAD:
            f.support[k] = offsets[k] + f.support[k] if k in moved else shape[k]
        else:
            f.support[k] = min(shape[k], max(0, f.support[k] - offsets[k]))


def _reshape(f: _Factor, full: Shape, lead: int, target: Shape) -> None:
    """Reshape the axes behind the first `lead`. Of a group of axes the factor stays repeated if it is on all of them."""
    expanded, own, support = [*f.node.shape], [*f.node.shape[:lead]], f.support[:lead]
    for before, after in match_axis_groups(full[lead:], target):
        at = range(lead, len(full))[before]
        is_repeated = any(f.repeats(k, full[k]) for k in at) and all(f.node.shape[k] == 1 for k in at)
        for k in at if not is_repeated else ():
            expanded[k] = full[k]
        extents = target[after]
        own += [1] * len(extents) if is_repeated else extents
        if len(extents) == 1:
            inner = [full[k] for k in at]
            support.append(1 + sum((f.support[k] - 1) * math.prod(inner[j + 1 :]) for j, k in enumerate(at)))
        else:
            support += extents
    f.node, f.support = b.reshape(b.expand(f.node, expanded), own), support


def _skew(step: _Skew, f: _Factor, full: Shape, lead: int, carries_zeros: bool) -> bool:
    """Skew a factor. In what a row gets from the row before, the factor that carries zeros must have zeros.

    So the other one stays as it is if it is the same in all of a row.
    """
    axis = lead + step.axis
    if carries_zeros and f.support[axis] > step.old - (step.rows - 1) * (step.old - step.new):
        return False
    if not carries_zeros and f.repeats(axis, full[axis]):
        return True
    both = (axis - 1, axis)
    f.node = b.expand(f.node, [full[k] if k in both else n for k, n in enumerate(f.node.shape)])
    own = f.node.shape
    t = b.reshape(f.node, (*own[: axis - 1], step.rows * step.old, *own[axis + 1 :]))
    t = b.shrink(t, [0] * len(t.shape), (*own[: axis - 1], step.rows * step.new, *own[axis + 1 :]))
    f.node = b.reshape(t, (*own[:axis], step.new, *own[axis + 1 :]))
    f.support[axis] = step.new
    return True
