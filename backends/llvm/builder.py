"""Text of one LLVM function while it is written: fresh names, basic blocks, intrinsics."""

from __future__ import annotations

from collections.abc import Sequence

from uops.backends.llvm.types import like, suffix, wide


class Builder:
    """Collects instructions; `block` is the label of the block that is being filled."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.block = "entry"
        self._names = 0
        self._declared: dict[str, str] = {}
        self._weights: dict[int, str] = {}

    def emit(self, instruction: str) -> str:
        """Append an instruction that has a result; gives the result's name."""
        name = f"%v{self._names}"
        self._names += 1
        self.lines.append(f"  {name} = {instruction}")
        return name

    def do(self, instruction: str) -> None:
        """Append an instruction without a result."""
        self.lines.append(f"  {instruction}")

    def select(self, condition: str, t: str, x: str, y: str) -> str:
        """Lane by lane, where `t` is a vector."""
        return self.emit(f"select {like(t, 'i1')} {condition}, {t} {x}, {t} {y}")

    def intrinsic(self, name: str, t: str, *operands: str) -> str:
        """Call `llvm.name` of type `t`, whose operands all have type `t`."""
        return self.call(f"llvm.{name}.{suffix(t)}", t, (t,) * len(operands), *operands)

    def call(self, function: str, result: str, types: tuple[str, ...], *operands: str) -> str:
        """Call and declare a function."""
        self._declared[function] = f"declare {result} @{function}({', '.join(types)})"
        return self.emit(f"call {result} @{function}({', '.join(f'{t} {x}' for t, x in zip(types, operands))})")

    def masked(self, name: str, result: str, t: str, *operands: tuple[str, str]) -> str:
        """Call `llvm.masked.name` on vectors of type `t` with (type, value) operands; gives the result's name, empty for void."""
        pointers = suffix(like(t, "ptr")) if name in ("gather", "scatter") else "p0"
        function = f"llvm.masked.{name}.{suffix(t)}.{pointers}"
        self._declared[function] = f"declare {result} @{function}({', '.join(kind for kind, _ in operands)})"
        call = f"call {result} @{function}({', '.join(f'{kind} {x}' for kind, x in operands)})"
        if result != "void":
            return self.emit(call)
        self.do(call)
        return ""

    def gathered(self, t: str, lanes: Sequence[str]) -> str:
        """A vector of scalars of type `t`."""
        kind, vector = wide(t, len(lanes)), "zeroinitializer"
        for k, x in enumerate(lanes):
            vector = self.emit(f"insertelement {kind} {vector}, {t} {x}, i64 {k}")
        return vector

    def label(self, name: str) -> None:
        """Start a block."""
        self.lines.append(f"{name}:")
        self.block = name

    def jump(self, name: str) -> None:
        self.do(f"br label %{name}")

    def branch(self, condition: str, then: str, other: str) -> None:
        self.do(f"br i1 {condition}, label %{then}, label %{other}")

    def repeat(self, condition: str, body: str, done: str, times: int) -> None:
        """The branch of a loop's test that mostly holds so many times: LLVM keeps in registers what is used most often, and takes
        an inner loop for one, however short it is, that nobody tells it about."""
        weights = self._weights.setdefault(times, f"!{len(self._weights)}")
        self.do(f"br i1 {condition}, label %{body}, label %{done}, !prof {weights}")

    @property
    def declarations(self) -> list[str]:
        weights = [f'{name} = !{{!"branch_weights", i32 {times}, i32 1}}' for times, name in self._weights.items()]
        return [*(self._declared[name] for name in sorted(self._declared)), *weights]
