"""A target for the passes before render: it has a description, and makes no code."""

from __future__ import annotations

from uops.compiler.target import Kernel, Target
from uops.spec.ir.node import UOp


class DescribedTarget(Target):
    """What a test says of a target. Nothing is rendered, compiled or loaded."""

    def render(self, linear: UOp) -> str:
        raise NotImplementedError

    def compile(self, source: str) -> bytes:
        raise NotImplementedError

    def load(self, binary: bytes) -> Kernel:
        raise NotImplementedError
