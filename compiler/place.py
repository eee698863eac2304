"""The place that an error of the compiler speaks of: a node's line in the text of its graph, and where it was built."""

from __future__ import annotations

from uops.spec.errors import CompileError
from uops.spec.ir.node import UOp


def untranslatable(rule: str, u: UOp, detail: str, root: UOp | None = None) -> CompileError:
    """The error that `u`, a node of the graph `root`, cannot be translated: `rule` is the ruling's id and its topic, `detail` what
    was expected and got."""
    from uops.spec.ir import origins  # for messages alone: not worth its import where nothing fails
    from uops.spec.ir.text import line, number

    origin = origins.of(u)
    built = f" - built at {origin}" if origin else ""
    text = line(u, number(root or u)).removeprefix("%? = ")  # an operand written in place has no number
    return CompileError(f"{rule} at {text}: {detail}{built}")
