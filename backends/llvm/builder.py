"""Text of one LLVM function while it is written: fresh names, basic blocks, intrinsics."""

from __future__ import annotations

_SUFFIX = {"float": "f32", "double": "f64"}


class Builder:
    """Collects instructions; `block` is the label of the block that is being filled."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.block = "entry"
        self._names = 0
        self._declared: dict[str, str] = {}

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
        return self.emit(f"select i1 {condition}, {t} {x}, {t} {y}")

    def intrinsic(self, name: str, t: str, *operands: str) -> str:
        """Call `llvm.name` of type `t`, whose operands all have type `t`."""
        return self.call(f"llvm.{name}.{_SUFFIX.get(t, t)}", t, (t,) * len(operands), *operands)

    def call(self, function: str, result: str, types: tuple[str, ...], *operands: str) -> str:
        """Call and declare a function."""
        self._declared[function] = f"declare {result} @{function}({', '.join(types)})"
        return self.emit(f"call {result} @{function}({', '.join(f'{t} {x}' for t, x in zip(types, operands))})")

    def label(self, name: str) -> None:
        """Start a block."""
        self.lines.append(f"{name}:")
        self.block = name

    def jump(self, name: str) -> None:
        self.do(f"br label %{name}")

    def branch(self, condition: str, then: str, other: str) -> None:
        self.do(f"br i1 {condition}, label %{then}, label %{other}")

    @property
    def declarations(self) -> list[str]:
        return [self._declared[name] for name in sorted(self._declared)]
