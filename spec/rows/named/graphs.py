"""The rows of what the first document derives from ops: compositions (`COMPOSITIONS`) and collectives (`COLLECTIVES`)."""

from __future__ import annotations

from uops.spec.rows.collectives import COLLECTIVES
from uops.spec.rows.compositions import COMPOSITIONS
from uops.spec.rows.named.base import ExecutedBy, NamedRow, RowSubject, Statement, state_claims

_UNSELECTED: Statement = ("an element that is not selected never contributes, neither as NaN nor as an infinity", "R50")

#: Name -> semantics and claims.
_COMPOSITIONS: dict[str, tuple[str, tuple[Statement, ...]]] = {
    "gemm": (
        "The matrix product of A (M, K) and B (K, N), of shape (M, N).",
        (("element (m, n) is the sum over k of A[m, k] * B[k, n]", "R32"), ("the sum has the dtype of the product", "R42")),
    ),
    "prefix_sum": (
        "The inclusive prefix sum of a vector.",
        (("element k is T[0] + ... + T[k]", "R32"), ("the prefix sum of an empty vector is empty", "R49")),
    ),
    "arange": (
        "The integers from 0 to n - 1.",
        (("element k is k", ""), ("arange of 0 is empty", "R49")),
    ),
    "gather": (
        "Elements of a vector, chosen by an index vector.",
        (("element i is T[idx[i]]", "R50"), ("an index out of range gives 0", "R50"), _UNSELECTED),
    ),
    "scatter_add": (
        "A vector with values added at the places that an index vector names.",
        (
            ("element k is T[k] plus every val[i] with idx[i] = k", "R50"),
            ("an index out of range adds nothing", "R50"),
            _UNSELECTED,
        ),
    ),
}


def _on_all(axis: str, shape: str) -> Statement:
    return f"the result has shape {shape} on D, with axis {axis}", "R74"


def _on_first(shape: str) -> Statement:
    return f"the result has shape {shape} on D[0], with axis null", "R74"


_EQUAL_PARTS: Statement = ("n divides s, else the graph is ill-formed", "R75")
_COLLECTIVES: dict[str, tuple[str, tuple[Statement, ...]]] = {
    "broadcast": (
        "Puts all of a tensor of one device on each of n devices.",
        (_on_all("null", "(s,)"), ("each device holds every element of T", "R76")),
    ),
    "scatter": (
        "Splits a tensor of one device in n parts, one for each device.",
        (_on_all("0", "(s,)"), ("device k holds part k of n equal parts of T", "R74"), _EQUAL_PARTS),
    ),
    "gather": (
        "Collects the shards of n devices on one.",
        (_on_first("(n*s,)"), ("the result is the shards, one after the other", "R74")),
    ),
    "reduce": (
        "Adds the shards of n devices on one.",
        (_on_first("(s,)"), ("element k is the sum of element k of the shards", "R32")),
    ),
    "allgather": (
        "Collects the shards of n devices on each of them.",
        (_on_all("null", "(n*s,)"), ("each device holds the shards, one after the other", "R76")),
    ),
    "reduce_scatter": (
        "Adds the shards of n devices, and leaves a part of the sum on each.",
        (_on_all("0", "(s,)"), ("device k holds part k of the sum of the shards", "R32"), _EQUAL_PARTS),
    ),
    "allreduce": (
        "Adds the shards of n devices on each of them.",
        (_on_all("null", "(s,)"), ("each device holds the sum of the shards", "R76"), _EQUAL_PARTS),
    ),
}

_RUN = "uops.interp.evaluation:run"
_PARTITION = "uops.compiler.passes.callify.partition:partition_over_devices"


def _make_composition_row(name: str) -> NamedRow:
    semantics, statements = _COMPOSITIONS[name]
    row_id = f"Composition/{name}"
    executed_by = ExecutedBy((f"uops.spec.rows.compositions:{name}", _RUN), ("uops.compiler.pipeline:lower",))
    return NamedRow(row_id, name, None, semantics, state_claims(row_id, statements), executed_by, RowSubject.BACKEND)


def _make_collective_row(name: str) -> NamedRow:
    semantics, statements = _COLLECTIVES[name]
    row_id = f"Collective/{name}"
    executed_by = ExecutedBy((f"uops.spec.rows.collectives:{name}", _RUN), (_PARTITION,))
    return NamedRow(row_id, name, None, semantics, state_claims(row_id, statements), executed_by, RowSubject.BACKEND)


assert _COMPOSITIONS.keys() == COMPOSITIONS.keys(), "spec/rows/named/graphs.py: _COMPOSITIONS"
assert _COLLECTIVES.keys() == COLLECTIVES.keys(), "spec/rows/named/graphs.py: _COLLECTIVES"
COMPOSITION_ROWS = tuple(map(_make_composition_row, COMPOSITIONS))
COLLECTIVE_ROWS = tuple(map(_make_collective_row, COLLECTIVES))
ROWS = (*COMPOSITION_ROWS, *COLLECTIVE_ROWS)
