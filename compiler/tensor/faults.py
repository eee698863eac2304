"""Errors of the front end: the user's call, the claim it would break, and the shapes or dtypes given."""

from __future__ import annotations

import operator
from typing import Any

from uops.spec.errors import SpecError
from uops.spec.ops import Op


def fault(method: str, claim: str | None, detail: str) -> SpecError:
    """The SpecError of a call that would break a claim: `Tensor.reshape: (2, 3) has 6 elements, (4,) has 4 [RESHAPE.C2: ...]`."""
    said = "" if claim is None else f" [{claim}: {_claims(claim.partition('.')[0])[claim]}]"
    return SpecError(f"Tensor.{method}: {detail}{said}", claim=claim)


def whole(v: Any) -> int:
    """A size, axis or amount as an int, from whatever Python takes for an index. Raises SpecError for anything else."""
    try:
        return operator.index(v)
    except TypeError as e:
        raise SpecError(f"a size, axis or amount of a Tensor is an integer, got {v!r}") from e


def claim_of(op: Op, text: str) -> str:
    """The id of an op's claim whose words begin so."""
    return next(name for name, words in _claims(op.name).items() if words.startswith(text))


def _claims(op: str) -> dict[str, str]:
    """The words of each claim of an op, by id."""
    from uops.spec.rows import ROWS  # only a mistake needs the rows

    return {c.id: c.text for c in ROWS[Op[op]].claims}
