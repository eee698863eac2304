"""What a row of the op table is, and how the modules beside this one write theirs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from uops.spec.ir.args import ARG_TYPE
from uops.spec.ir.node import RULES, Rule, UOp
from uops.spec.ir.ops import Family, Op
from uops.spec.rows.claims import Claim, Draft, Schema, number, schema_claim

#: A core form of a node, or the reason why the node is core as it stands.
Decomposition = Callable[..., UOp] | str
PRIMITIVE = "core: a primitive"


@dataclass(frozen=True, slots=True)
class Gradient:
    """Where the gradient of an op is: the rule once one is set, and a remark (R78)."""

    remark: str
    rule: Callable[..., Any] | None = None


#: Gradients by remark; rules are attached where reverse mode is defined.
SMOOTH = Gradient("differentiable; no rule is attached yet")
NONE = Gradient("none: no derivative (R78)")
EFFECT = Gradient("none: an effect or structure, no value")


@dataclass(frozen=True, slots=True)
class OpSpec:
    """One row: everything the specification says about one op.

    `tinyspec` and `bestiary` are the name printed in that document, or None. The five rules are functions that derive the property.
    """

    op: Op
    id: str
    family: Family
    tinyspec: str | None
    bestiary: str | None
    schema: Schema
    arg_type: type | None
    semantics: str
    dtype: Rule
    shape: Rule
    device: Rule
    min_max: Rule
    axis: Rule
    claims: tuple[Claim, ...]
    decomposition: Decomposition
    gradient: Gradient

    @property
    def document(self) -> str:
        if self.tinyspec is None:
            return "bestiary"
        return "tinyspec" if self.bestiary is None else "both"

    @property
    def name(self) -> str:
        return self.tinyspec or self.bestiary or self.op.name

    @property
    def prefix(self) -> str:
        """The part of a claim id before the point."""
        return self.op.name


class Table:
    """Collects one module's rows: `r(op, tinyspec name, bestiary name, schema, semantics, claims...)` in the documents' order."""

    def __init__(self, family: Family) -> None:
        self.family = family
        self.rows: list[OpSpec] = []

    def __call__(
        self,
        op: Op,
        tinyspec: str | None,
        bestiary: str | None,
        schema: str,
        semantics: str,
        claims: Sequence[Draft] = (),
        decomposition: Decomposition = PRIMITIVE,
        gradient: Gradient = SMOOTH,
        family: Family | None = None,
    ) -> None:
        group = family or self.family
        sources = Schema(schema)
        spec_id = f"{group.value}/{tinyspec or bestiary}"
        self.rows.append(
            OpSpec(
                op=op,
                id=spec_id,
                family=group,
                tinyspec=tinyspec,
                bestiary=bestiary,
                schema=sources,
                arg_type=ARG_TYPE.get(op),
                semantics=semantics,
                dtype=RULES["_dtype"][op],
                shape=RULES["_shape"][op],
                device=RULES["_device"][op],
                min_max=RULES["_min_max"][op],
                axis=RULES["_axis"][op],
                claims=number(op.name, spec_id, (schema_claim(op, sources), *claims)),
                decomposition=decomposition,
                gradient=gradient,
            )
        )
