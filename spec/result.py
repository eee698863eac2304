"""The result of a run by the interpreter, a compiled program or a backend under test."""

from __future__ import annotations

from typing import Any, NamedTuple


class Result(NamedTuple):
    """The outputs of one run.

    `values` has one array per value of the root, in order. `buffers` maps `b<unique>` to the final contents of each written Buffer,
    and `p<slot>` to those of each free Param that was written.
    """

    values: tuple[Any, ...]
    buffers: dict[str, Any]
