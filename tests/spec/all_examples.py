"""The whole registry: core rows, bestiary rows, dialects, and the schema claims, which are made from the rows."""

import dataclasses
from collections.abc import Iterable

import bestiary_examples  # noqa: F401 - registers
import dialect_examples  # noqa: F401 - registers
from claim_examples import EXAMPLES, GOOD, VOID, claim, i

from uops.spec.ir import args as A
from uops.spec.ir.node import UOp
from uops.spec.ir.ops import Op
from uops.spec.rows.rows import ROWS

__all__ = ["EXAMPLES", "GOOD"]


def _wrong_schema(u: UOp) -> list[UOp]:
    """Too few and too many sources, wrong args and fields, a void where a value belongs."""
    schema = ROWS[u.op].schema
    found = []
    if schema.min_sources:
        found.append(u.replace(src=u.src[: schema.min_sources - 1]))
    if schema.max_sources is not None:
        found.append(u.replace(src=(*u.src, *[i(1)] * (schema.max_sources + 1 - len(u.src)))))
    kind = ROWS[u.op].arg_type
    found.append(u.replace(arg=A.SourceArg("?") if kind is not A.SourceArg else A.NameArg("?")))
    if kind is not None and u.op not in A.ARG_OPTIONAL:
        found.append(u.replace(arg=None))
    if u.arg is not None:
        found += [u.replace(arg=dataclasses.replace(u.arg, **{f.name: ...})) for f in dataclasses.fields(u.arg)]
    for k, _ in enumerate(u.src):
        if schema.is_value(k):
            found.append(u.replace(src=(*u.src[:k], VOID, *u.src[k + 1 :])))
    return found


def schema_claims(ops: Iterable[Op]) -> None:
    for op in ops:
        claim(f"{op.name}.C1", GOOD[op], *_wrong_schema(GOOD[op]))


schema_claims(Op)
