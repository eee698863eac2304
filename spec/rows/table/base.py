"""The type of a row of the op table, and the collector with which modules write theirs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from uops.spec.ir.args import ARG_TYPE
from uops.spec.ir.node import RULES, Rule, UOp
from uops.spec.ir.ops import Family, Op
from uops.spec.rows.claims import Claim, ClaimDraft, Schema, number_claims, schema_claim
from uops.spec.rows.gradients.base import Gradient
from uops.spec.rows.gradients.reverse import GRADIENTS

#: A function that returns a core form of a node, or the reason why the node is core itself.
Decomposition = Callable[..., UOp] | str
#: The decomposition of an op that has none.
PRIMITIVE = "core: a primitive"


@dataclass(frozen=True, slots=True)
class OpSpec:
    """A row of the specification: all that it says about one op.

    `tinyspec` and `bestiary` are the names printed in those documents, or None. `dtype`, `shape`, `device`, `min_max` and `axis`
    are the rules that derive these properties.
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
        """The document that has the op: "tinyspec", "bestiary" or "both"."""
        if self.tinyspec is None:
            return "bestiary"
        return "tinyspec" if self.bestiary is None else "both"

    @property
    def name(self) -> str:
        """The name of the op as printed, tinyspec's first."""
        return self.tinyspec or self.bestiary or self.op.name


def name_rule(rule: Rule) -> str:
    """Return the name of a rule of a derived property, with its module: `shape.of_pad`."""
    return f"{rule.__module__.rpartition('.')[2]}.{rule.__name__}"


class RowTable:
    """A collector of the rows of one module.

    Calls append rows, in the documents' order: `r(op, tinyspec name, bestiary name, schema, semantics, claims...)`.
    """

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
        claims: Sequence[ClaimDraft] = (),
        decomposition: Decomposition = PRIMITIVE,
        family: Family | None = None,
    ) -> None:
        assert op in GRADIENTS, f"spec/rows/gradients/elementwise.py, or the module of its family: add the gradient of {op.name}"
        row_family = family or self.family
        sources = Schema(schema)
        spec_id = f"{row_family.value}/{tinyspec or bestiary}"
        self.rows.append(
            OpSpec(
                op=op,
                id=spec_id,
                family=row_family,
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
                claims=number_claims(op.name, spec_id, (schema_claim(op, sources), *claims)),
                decomposition=decomposition,
                gradient=GRADIENTS[op],
            )
        )
