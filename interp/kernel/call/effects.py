"""The effects of a kernel on its memories, as far as its graph alone says: which it writes, and in elements of which size."""

from __future__ import annotations

from dataclasses import dataclass, field

from uops.interp.kernel.structure.blocks import KernelStructure
from uops.spec.ir import dtypes as dt
from uops.spec.ir.node import UOp, toposort
from uops.spec.ir.ops import OPAQUE_INSTRUCTIONS, WRITES, Op
from uops.spec.ir.scope import VIEWS


@dataclass(eq=False, slots=True)
class MemoryEffects:
    """The effects of a kernel per base: a leaf, or a Buffer of the kernel's own.

    `min_item_size` is the least item size of the accesses and of the views below them, in bytes. `stored_bases` are written by a
    Store or AtomicAdd; `modified_bases` also by what an opaque instruction may write. `atomic_only_bases` are accessed by
    AtomicAdds alone. `read_bases` are accessed by something other than a Store.
    """

    min_item_size: dict[UOp, int] = field(default_factory=dict)
    stored_bases: set[UOp] = field(default_factory=set)
    modified_bases: set[UOp] = field(default_factory=set)
    atomic_only_bases: set[UOp] = field(default_factory=set)
    read_bases: set[UOp] = field(default_factory=set)


def summarize_memory_effects(kernel: KernelStructure) -> MemoryEffects:
    """Return the effects of a kernel on each memory."""
    leaves = frozenset(kernel.leaves)
    effects, bases, other_bases = MemoryEffects(), dict[UOp, UOp](), set[UOp]()
    for u in toposort(kernel.root, gate=lambda u: u not in leaves):
        is_view = u.op in VIEWS
        if u in leaves or u.op is Op.BUFFER:
            bases[u] = u
        elif is_view and u.src and (source := u.src[0]) in bases:  # operand or buffer
            bases[u] = bases[source]
            effects.min_item_size[bases[u]] = min(effects.min_item_size.get(bases[u], 8), element_size(u))
        if u in leaves or u.op is Op.AFTER:
            continue
        for k, s in enumerate(u.src):
            if s in bases and not (is_view and k == 0):
                base = bases[s]
                effects.min_item_size[base] = min(effects.min_item_size.get(base, 8), element_size(s))
                written = k == 0 and u.op in WRITES
                if written:
                    effects.stored_bases.add(base)
                if not written or u.op is not Op.STORE:
                    effects.read_bases.add(base)
                if written or u.op in OPAQUE_INSTRUCTIONS:
                    effects.modified_bases.add(base)
                (effects.atomic_only_bases if u.op is Op.ATOMICADD and k == 0 else other_bases).add(base)
    effects.atomic_only_bases -= other_bases
    return effects


def element_size(u: UOp) -> int:
    """Return the bytes per element of a memory; index values are held as int64."""
    return 8 if u.dtype is dt.index else u.dtype.itemsize
