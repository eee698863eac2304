"""Errors of the front end: the user's call, the claim it would break, and the shapes or dtypes given."""

from __future__ import annotations

import operator
import sys
from types import FrameType
from typing import Any

from uops.spec.errors import SpecError, SpecTypeError, SpecValueError
from uops.spec.ir.node import MOST_AXES
from uops.spec.ir.ops import Op

#: Package of the modules with methods of Tensors.
_PACKAGE = __name__.rpartition(".")[0] + "."
#: Most bits of a size; most bits of an integer, and most characters of any other value, that an error shows.
_SIZE_BITS, _SHOWN_BITS, _SHOWN = 64, 512, 200
#: Special methods without another name.
_SPECIAL = frozenset(
    {"__init__", "__getitem__", "__setitem__", "__len__", "__iter__", "__bool__", "__int__", "__float__", "__index__"}
)


def fault(fallback_method: str, claim: str | None, detail: str, kind: type[SpecError] = SpecValueError) -> SpecError:
    """Return the error of a call that would break a claim: `Tensor.reshape: (2, 3) has 6 elements, (4,) has 4 [RESHAPE.C2: ...]`.

    It names the method that the user called, which may have called `fallback_method`.
    """
    name = _find_called_method_name(sys._getframe(1)) or fallback_method
    cited = "" if claim is None else f" [{claim}: {_claim_texts(claim.partition('.')[0])[claim]}]"
    return kind(f"Tensor{'' if name == '__init__' else '.' + name}: {detail}{cited}", claim=claim)


def _find_called_method_name(frame: FrameType | None) -> str:
    """Return the name of the outermost method on the stack before the user's code; an operator has the name of its method.

    `__call__` is no name: the user calls a function that `jit` made.
    """
    names: list[str] = []
    while frame is not None and frame.f_globals.get("__name__", "").startswith(_PACKAGE):
        code = frame.f_code
        is_method = code.co_varnames[:1] in (("self",), ("cls",)) and code.co_name != "__call__"
        if is_method or code.co_name == "manual_seed":
            names.append(code.co_name)
        frame = frame.f_back
    outer_first = names[::-1]
    named = (n for n in outer_first if not n.startswith("_") or n in _SPECIAL)
    return next(named, next((n for n in outer_first if n.startswith("__")), ""))


def require_integer_of_at_most_64_bits(v: Any) -> int:
    """Return a size, axis or amount as an int, from any index that Python accepts.

    Raises SpecTypeError for anything else, SpecValueError for one beyond 64 bits.
    """
    try:
        integer = operator.index(v)
    except TypeError as e:
        raise fault("", None, f"expected an integer for a size, axis or amount, got {format_for_error(v)}", SpecTypeError) from e
    if integer.bit_length() > _SIZE_BITS:
        raise fault("", None, f"expected a size, axis or amount of at most {_SIZE_BITS} bits, got {format_for_error(v)}")
    return integer


def require_axes(method: str, count: int) -> None:
    """Raise SpecValueError if a Tensor would have more axes than a value may have (R65)."""
    if count > MOST_AXES:
        raise fault(method, None, f"expected at most {MOST_AXES} axes, got {count} (R65)")


def format_for_error(v: Any) -> str:
    """Return a value's text for an error: cut if it is long, and without digits if Python would refuse to print them."""
    if isinstance(v, int) and v.bit_length() > _SHOWN_BITS:
        return f"<integer of {v.bit_length()} bits>"
    try:
        text = repr(v)
    except ValueError:  # of such an integer inside
        text = f"<{type(v).__name__}>"
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."


def to_list_or_raise(sequence: Any, error_subject: str) -> list[Any]:
    """Return the elements of a sequence. Raises SpecTypeError for anything else, and for text."""
    if not isinstance(sequence, (str, bytes)):
        try:
            return list(sequence)
        except TypeError:
            pass
    raise fault("", None, f"expected a sequence of {error_subject}, got {format_for_error(sequence)}", SpecTypeError)


def claim_of(op: Op, text: str) -> str:
    """Return the id of an op's claim that begins with these words."""
    return next(name for name, words in _claim_texts(op.name).items() if words.startswith(text))


def _claim_texts(op_name: str) -> dict[str, str]:
    """Return the texts of an op's claims, by id."""
    from uops.spec.rows.rows import ROWS  # late: only an error needs the rows

    return {c.id: c.text for c in ROWS[Op[op_name]].claims}
