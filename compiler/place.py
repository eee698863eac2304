"""The place in compiler errors: a node's line in the text of its graph, and where it was built."""

from __future__ import annotations

from uops.spec.errors import CompileError
from uops.spec.ir.node import UOp


def untranslatable_error(ruling_and_topic: str, node: UOp, detail: str, root: UOp | None = None) -> CompileError:
    """Return the error that `node`, a node of the graph `root`, cannot be translated.

    `ruling_and_topic` is the ruling's id and its topic, `detail` what was expected and got.
    """
    from uops.spec.ir import origins  # late: for messages alone, not worth its import where nothing fails
    from uops.spec.ir.text import format_node_as_line, name_nodes

    origin = origins.origin_of(node)
    built = f" - built at {origin}" if origin else ""
    text = format_node_as_line(node, name_nodes(root or node)).removeprefix("%? = ")  # an operand written in place has no number
    return CompileError(f"{ruling_and_topic} at {text}: {detail}{built}")
