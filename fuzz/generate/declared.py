"""The dtypes and rows that a backend declares, as limits of what a generator draws.

Takes: `Capabilities`. Gives: the dtypes and producers that a generator may use (`filter_dtypes`, `filter_producers`), and a
test whether a program has only declared cells (`supports_graph`).

A cell is a row and a dtype; the dtype of a comparison is that of its operands, as in conformance. If no dtype
is left, `filter_dtypes` returns its argument: the backend may then refuse the program.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable
from typing import Any, Protocol, TypeVar

from uops.backends.contract import COMPILED_SURFACES, Capabilities, Missing
from uops.compiler.target import Ability
from uops.spec.ir import dtypes as dt
from uops.spec.ir.dtypes import DType
from uops.spec.ir.node import UOp
from uops.spec.ir.ops import COMPARE, Op
from uops.spec.ir.record import dataclass
from uops.spec.rows.optional import find_optional_function, list_nodes_outside_optional_bodies
from uops.spec.rows.rows import ROWS

Json = dict[str, Any]


class HasRequiredOps(Protocol):
    """An object that builds values out of certain ops."""

    @property
    def required_ops(self) -> tuple[Op, ...]:
        """The ops that every such value contains."""
        ...


N = TypeVar("N", bound=HasRequiredOps)


@dataclass(frozen=True, slots=True)
class SupportedOpDtypes:
    """The rows and dtypes that a backend supports. `missing` holds globs of the (row, dtype) cells that it lacks.

    A backend that `reads_inputs_in_place` may be given arrays that are too large to be copied.
    """

    dtypes: tuple[DType, ...] = dt.STORABLE
    missing: tuple[tuple[str, str], ...] = ()
    reads_inputs_in_place: bool = False

    @property
    def supports_everything(self) -> bool:
        """True if every cell of storable dtypes is supported."""
        return not self.missing and self.dtypes == dt.STORABLE

    @classmethod
    def from_capabilities(cls, capabilities: Capabilities) -> SupportedOpDtypes:
        """Return the cells that a backend declares."""
        dtypes = tuple(d for d in dt.STORABLE if d in capabilities.dtypes)
        missing = tuple(dict.fromkeys((m.row, m.dtype) for m in capabilities.unsupported))
        is_lent_memory = Ability.LENDING.name.lower() in capabilities.abilities
        return cls(dtypes, missing, capabilities.surfaces == COMPILED_SURFACES and not is_lent_memory)

    def intersect(self, other: SupportedOpDtypes) -> SupportedOpDtypes:
        """Return the cells that both backends declare."""
        dtypes = tuple(d for d in self.dtypes if d in other.dtypes)
        missing = tuple(dict.fromkeys((*self.missing, *other.missing)))
        return SupportedOpDtypes(dtypes, missing, self.reads_inputs_in_place and other.reads_inputs_in_place)

    def to_json(self) -> Json | None:
        """Return a JSON object, or None for `EVERYTHING`."""
        if self == EVERYTHING:
            return None
        names = [d.name for d in self.dtypes]
        return {"dtypes": names, "missing": [list(m) for m in self.missing], "in_place": self.reads_inputs_in_place}

    @classmethod
    def from_json(cls, document: Json | None) -> SupportedOpDtypes:
        """Return the cells that `to_json` wrote."""
        if document is None:
            return EVERYTHING
        missing = tuple((row, d) for row, d in document["missing"])
        return cls(tuple(dt.DTYPES[d] for d in document["dtypes"]), missing, document["in_place"])

    def filter_dtypes(self, dtypes: tuple[DType, ...]) -> tuple[DType, ...]:
        """Keep the supported dtypes, repetitions included; all of them if none is supported."""
        return dtypes if self.supports_everything else tuple(d for d in dtypes if d in self.dtypes) or dtypes

    def filter_producers(self, producers: tuple[N, ...]) -> tuple[N, ...]:
        """Keep the producers each of whose required ops is supported for some dtype."""
        return producers if self.supports_everything else tuple(p for p in producers if self.supports_ops(p.required_ops))

    def supports_ops(self, ops: Iterable[Op]) -> bool:
        """Return True if each op is supported for some dtype."""
        return self.supports_everything or all(_supports_for_some_dtype(self, op) for op in ops)

    def supports_graph(self, root: UOp) -> bool:
        """Return True if every node of a program is of a supported cell. A Tuple at the root only groups outputs and
        needs no cell.
        """
        if self.supports_everything:
            return True
        roots = root.src if root.op is Op.TUPLE else (root,)
        return all(self._supports_node(u) for u in list_nodes_outside_optional_bodies(*roots) if u.op in ROWS)

    def _supports_node(self, u: UOp) -> bool:
        function = find_optional_function(u) if u.op is Op.FUNCTION else None
        is_row_supported = function is None or self.supports_row(function.row, u.arguments[0].dtype)
        return is_row_supported and _is_op_dtype_supported(self, u.op, *_own_dtype_and_operand_dtype(u))

    def supports_row(self, row: str, d: DType) -> bool:
        """Return True if a cell of a row, by its id, is supported."""
        return self.supports_everything or _is_row_supported(self, row, d)


#: All cells of storable dtypes.
EVERYTHING = SupportedOpDtypes()


def _own_dtype_and_operand_dtype(u: UOp) -> tuple[DType, DType]:
    """Return the dtype of a node, and the dtype of its cell."""
    return u.dtype, u.lhs.dtype if u.op in COMPARE else u.dtype


@functools.lru_cache(100_000)
def _is_row_supported(declared: SupportedOpDtypes, row: str, d: DType) -> bool:
    capabilities = Capabilities(declared.dtypes, tuple(Missing(row, name, "") for row, name in declared.missing))
    return capabilities.missing(row, d) is None


@functools.lru_cache(100_000)
def _is_op_dtype_supported(declared: SupportedOpDtypes, op: Op, node_dtype: DType, cell_dtype: DType) -> bool:
    if node_dtype in dt.STORABLE and node_dtype not in declared.dtypes:
        return False
    return _is_row_supported(declared, ROWS[op].id, cell_dtype)


@functools.lru_cache(10_000)
def _supports_for_some_dtype(declared: SupportedOpDtypes, op: Op) -> bool:
    return any(_is_op_dtype_supported(declared, op, d, d) for d in (*declared.dtypes, dt.index, dt.void))
