"""The place in compiler errors: a node's line in the text of its graph, and where it was built."""

from __future__ import annotations

from uops.spec.errors import CompileError
from uops.spec.ir.node import UOp


def untranslatable_error(rule: str, u: UOp, detail: str, root: UOp | None = None) -> CompileError:
    """Return the error that `u`, a node of the graph `root`, cannot be translated.

    `rule` is the ruling's id and its topic, `detail` what was expected and got.
    """
    from uops.spec.ir import origins  # late: for messages alone, not worth its import where nothing fails
    from uops.spec.ir.text import format_node, name_nodes

    origin = origins.origin_of(u)
    built = f" - built at {origin}" if origin else ""
    text = format_node(u, name_nodes(root or u)).removeprefix("%? = ")  # an operand written in place has no number
    return CompileError(f"{rule} at {text}: {detail}{built}")
