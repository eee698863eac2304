"""What a run gives, whoever runs it: interpreter, compiled program or backend under test."""

from __future__ import annotations

from typing import Any, NamedTuple


class Result(NamedTuple):
    """`values`: one array per value of the root, in order. `buffers`: final contents of each Buffer written, keyed `b<unique>`."""

    values: tuple[Any, ...]
    buffers: dict[str, Any]
