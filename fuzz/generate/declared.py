"""What a backend declares, as what its programs are drawn from.

Takes: `Capabilities`. Gives: the dtypes and the producers that a generator is to take (`of`, `among`), and whether a program is
made of declared cells alone (`holds`). A cell is a row and a dtype, of a comparison that of its operands, as in conformance. Where
nothing that a generator could take is declared, it takes what it does without: the backend may refuse such a program.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable
from typing import Any, Protocol, TypeVar

from uops.backends.contract import Capabilities, Missing
from uops.spec.ir import dtypes as dt
from uops.spec.ir.dtypes import DType
from uops.spec.ir.node import UOp, toposort
from uops.spec.ir.ops import COMPARE, Op
from uops.spec.ir.record import dataclass
from uops.spec.rows.rows import ROWS

Json = dict[str, Any]


class Needy(Protocol):
    """What makes a value of ops that it always uses."""

    @property
    def needs(self) -> tuple[Op, ...]: ...


N = TypeVar("N", bound=Needy)


@dataclass(frozen=True, slots=True)
class Declared:
    """`missing` are the globs of rows and dtypes that a backend does not have."""

    dtypes: tuple[DType, ...] = dt.STORABLE
    missing: tuple[tuple[str, str], ...] = ()

    @property
    def everything(self) -> bool:
        return not self.missing and self.dtypes == dt.STORABLE

    @classmethod
    def by(cls, c: Capabilities) -> Declared:
        """What a backend declares."""
        dtypes = tuple(d for d in dt.STORABLE if d in c.dtypes)
        return cls(dtypes, tuple(dict.fromkeys((m.row, m.dtype) for m in c.unsupported)))

    def both(self, other: Declared) -> Declared:
        """What two backends declare, both of them."""
        dtypes = tuple(d for d in self.dtypes if d in other.dtypes)
        return Declared(dtypes, tuple(dict.fromkeys((*self.missing, *other.missing))))

    def to_json(self) -> Json | None:
        """None of everything."""
        return None if self.everything else {"dtypes": [d.name for d in self.dtypes], "missing": [list(m) for m in self.missing]}

    @classmethod
    def of_json(cls, found: Json | None) -> Declared:
        if found is None:
            return EVERYTHING
        return cls(tuple(dt.DTYPES[d] for d in found["dtypes"]), tuple((row, d) for row, d in found["missing"]))

    def of(self, dtypes: tuple[DType, ...]) -> tuple[DType, ...]:
        """Those that may be drawn, as often as they are there."""
        return dtypes if self.everything else tuple(d for d in dtypes if d in self.dtypes) or dtypes

    def among(self, makers: tuple[N, ...]) -> tuple[N, ...]:
        """Those of which every op that they need is there for some dtype."""
        return makers if self.everything else tuple(m for m in makers if self.has(m.needs))

    def has(self, ops: Iterable[Op]) -> bool:
        """Whether each of them is there for some dtype."""
        return self.everything or all(_some(self, op) for op in ops)

    def holds(self, root: UOp) -> bool:
        """Whether every node of a program is of a declared cell; that it gives several values, a Tuple at its root, is no cell."""
        if self.everything:
            return True
        roots = root.src if root.op is Op.TUPLE else (root,)
        return all(_cell(self, u.op, *_dtypes(u)) for u in toposort(*roots) if u.op in ROWS)


EVERYTHING = Declared()


def _dtypes(u: UOp) -> tuple[DType, DType]:
    """Of the node, and of the cell that it is in."""
    return u.dtype, u.src[0].dtype if u.op in COMPARE else u.dtype


@functools.lru_cache(100_000)
def _cell(declared: Declared, op: Op, own: DType, d: DType) -> bool:
    c = Capabilities(declared.dtypes, tuple(Missing(row, name, "") for row, name in declared.missing))
    return (own not in dt.STORABLE or own in c.dtypes) and c.missing(ROWS[op].id, d) is None


@functools.lru_cache(10_000)
def _some(declared: Declared, op: Op) -> bool:
    return any(_cell(declared, op, d, d) for d in (*declared.dtypes, dt.index, dt.void))
