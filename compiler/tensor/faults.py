"""Errors of the front end: the user's call, the claim it would break, and the shapes or dtypes given."""

from __future__ import annotations

import operator
import sys
from types import FrameType
from typing import Any

from uops.spec.errors import SpecError, SpecTypeError, SpecValueError
from uops.spec.ir.node import MOST_AXES
from uops.spec.ir.ops import Op

#: Where the methods of a Tensor are.
_PACKAGE = __name__.rpartition(".")[0] + "."
#: Bits of a size; bits of an integer, and characters of any other value, that an error spells.
_SIZE_BITS, _SHOWN_BITS, _SHOWN = 64, 512, 200
#: Special methods that have no other name.
_SPECIAL = frozenset(
    {"__init__", "__getitem__", "__setitem__", "__len__", "__iter__", "__bool__", "__int__", "__float__", "__index__"}
)


def fault(method: str, claim: str | None, detail: str, kind: type[SpecError] = SpecValueError) -> SpecError:
    """The error of a call that would break a claim: `Tensor.reshape: (2, 3) has 6 elements, (4,) has 4 [RESHAPE.C2: ...]`.

    It names the method that the user called, which may have called `method`.
    """
    name = _find_method(sys._getframe(1)) or method
    said = "" if claim is None else f" [{claim}: {_claims(claim.partition('.')[0])[claim]}]"
    return kind(f"Tensor{'' if name == '__init__' else '.' + name}: {detail}{said}", claim=claim)


def _find_method(frame: FrameType | None) -> str:
    """Find the name of the outermost method on the stack from here to the user's code; an operator has the name of its method."""
    names: list[str] = []
    while frame is not None and frame.f_globals.get("__name__", "").startswith(_PACKAGE):
        code = frame.f_code
        if code.co_varnames[:1] in (("self",), ("cls",)) or code.co_name == "manual_seed":
            names.append(code.co_name)
        frame = frame.f_back
    outer_first = names[::-1]
    named = (n for n in outer_first if not n.startswith("_") or n in _SPECIAL)
    return next(named, next((n for n in outer_first if n.startswith("__")), ""))


def whole(v: Any) -> int:
    """A size, axis or amount as an int, from whatever Python takes for an index.

    Raises SpecTypeError for anything else, SpecValueError for one beyond 64 bits.
    """
    try:
        found = operator.index(v)
    except TypeError as e:
        raise fault("", None, f"a size, axis or amount of a Tensor is an integer, got {spell(v)}", SpecTypeError) from e
    if found.bit_length() > _SIZE_BITS:
        raise fault("", None, f"a size, axis or amount of a Tensor has at most {_SIZE_BITS} bits, got {spell(v)}")
    return found


def require_axes(method: str, count: int) -> None:
    """Raise SpecValueError if a Tensor would have more axes than a value may have (R65)."""
    if count > MOST_AXES:
        raise fault(method, None, f"a Tensor has at most {MOST_AXES} axes, got {count} (R65)")


def spell(v: Any) -> str:
    """Spell a value for an error: cut where it is long, and without digits where Python would refuse to spell them."""
    if isinstance(v, int) and v.bit_length() > _SHOWN_BITS:
        return f"<integer of {v.bit_length()} bits>"
    try:
        text = repr(v)
    except ValueError:  # of such an integer inside
        text = f"<{type(v).__name__}>"
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."


def to_list(v: Any, what: str) -> list[Any]:
    """List the elements of a sequence. Raises SpecTypeError for what has none, and for text."""
    if not isinstance(v, (str, bytes)):
        try:
            return list(v)
        except TypeError:
            pass
    raise fault("", None, f"{what} are a sequence, got {spell(v)}", SpecTypeError)


def claim_of(op: Op, text: str) -> str:
    """The id of an op's claim whose words begin so."""
    return next(name for name, words in _claims(op.name).items() if words.startswith(text))


def _claims(op: str) -> dict[str, str]:
    """The words of each claim of an op, by id."""
    from uops.spec.rows.rows import ROWS  # only a mistake needs the rows

    return {c.id: c.text for c in ROWS[Op[op]].claims}
