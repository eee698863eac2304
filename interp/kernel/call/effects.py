"""What a kernel does to its memories, as far as its graph alone says: which it writes, and as elements of which size."""

from __future__ import annotations

from dataclasses import dataclass, field

from uops.interp.kernel.structure.blocks import Kernel
from uops.spec.ir import dtypes as dt
from uops.spec.ir.args import AddrSpace
from uops.spec.ir.node import UOp, toposort
from uops.spec.ir.ops import Op
from uops.spec.ir.scope import VIEWS

#: These write their first source.
WRITES = frozenset({Op.STORE, Op.ATOMICADD})
#: These do with their sources what only a backend knows.
OPAQUE = frozenset({Op.INS, Op.CUSTOM, Op.CUSTOMI})


@dataclass(eq=False, slots=True)
class Survey:
    """Per base - a leaf, or a Buffer of the kernel's own. `grain`: the least item size of its accesses, in bytes. `stored`: the
    bases that a Store or AtomicAdd writes; `changed`: those, and what an opaque instruction may write. `added`: what AtomicAdds
    alone access. `used`: what anything but a Store accesses."""

    grain: dict[UOp, int] = field(default_factory=dict)
    stored: set[UOp] = field(default_factory=set)
    changed: set[UOp] = field(default_factory=set)
    added: set[UOp] = field(default_factory=set)
    used: set[UOp] = field(default_factory=set)


def survey(kernel: Kernel) -> Survey:
    leaves = frozenset(kernel.leaves)
    found, bases, others = Survey(), dict[UOp, UOp](), set[UOp]()
    for u in toposort(kernel.root, gate=lambda u: u not in leaves):
        view = u.op in VIEWS
        if u in leaves or u.op is Op.BUFFER:
            bases[u] = u
        elif view and u.src and u.src[0] in bases:
            bases[u] = bases[u.src[0]]
        if u in leaves or u.op is Op.AFTER:
            continue
        for k, s in enumerate(u.src):
            if s in bases and not (view and k == 0):
                base = bases[s]
                found.grain[base] = min(found.grain.get(base, 8), item_size(s))
                written = k == 0 and u.op in WRITES
                if written:
                    found.stored.add(base)
                if not written or u.op is not Op.STORE:
                    found.used.add(base)
                if written or u.op in OPAQUE:
                    found.changed.add(base)
                (found.added if u.op is Op.ATOMICADD and k == 0 else others).add(base)
    found.added -= others
    return found


def item_size(u: UOp) -> int:
    """Bytes per element of a memory; index values lie as int64."""
    return 8 if u.dtype is dt.index else u.dtype.itemsize


def is_private(u: UOp) -> bool:
    """A Buffer that the kernel itself makes: LOCAL or REG (R61)."""
    return u.op is Op.BUFFER and u.arg.addrspace is not AddrSpace.GLOBAL
