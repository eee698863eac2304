"""Native text: the nodes that hold code of a target, or name code outside of the language.

Takes: nodes, or a graph that was read from a text. Gives: which nodes are native, or an error that names the first. Native code
runs with the rights of the process, so a program from strangers may not have any unless its reader allows it. Spec: Codegen/Ins,
Custom, CustomFunction, Program; R167 (native text).
"""

from __future__ import annotations

from uops.spec.errors import SpecError
from uops.spec.ir.node import UOp
from uops.spec.ir.ops import OPAQUE_INSTRUCTIONS, Op
from uops.spec.ir.text import LocatedGraph
from uops.spec.untrusted import escape_to_one_line

#: Bodies of Calls that no pass looks into: a function of the device, and a kernel compiled earlier.
OPAQUE_BODIES = frozenset({Op.CUSTOM_FUNCTION, Op.PROGRAM})


class NativeTextError(SpecError):
    """A file that holds native text, whose reader did not allow it."""


def is_native(u: UOp) -> bool:
    """Return True for a node that holds or names native code. A Program of the second document does if it has a binary."""
    if u.op is Op.B_PROGRAM:
        return any(s.op is Op.PROGRAM_BINARY for s in u.src)
    return u.op in OPAQUE_INSTRUCTIONS or u.op in OPAQUE_BODIES


def refuse_native_text(graph: LocatedGraph, where: str, how_to_allow: str) -> None:
    """Raise NativeTextError for the first native node of a graph that was read from a text, if there is one.

    Nodes that the root does not need count, too. The message begins with `where` and ends with `how_to_allow`.
    """
    places = {u: place for u, place in graph.places.items() if is_native(u)}
    if places:
        first = min(places, key=lambda u: places[u].line)
        line, name = places[first]
        message = (
            f"{where}line {line}: {name} is native code ({describe_native(first)}), which runs with all rights of this process"
        )
        raise NativeTextError(f"{message}; {how_to_allow}", line=line, column=1)


def describe_native(u: UOp) -> str:
    """Return the op of a native node, and the text or name that it holds."""
    text = getattr(u.arg, "fmt", None) or getattr(u.arg, "name", None)
    return f"{u.op.name.lower()} {escape_to_one_line(str(text)[:80])}" if text else u.op.name.lower()
