"""Text of one LLVM function under construction: fresh names, basic blocks, intrinsics."""

from __future__ import annotations

from collections.abc import Sequence

from uops.backends.llvm.types import intrinsic_suffix, vector_type, with_element


class IRBuilder:
    """A list of instructions; `block` is the label of the current block."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.block = "entry"
        self._names = 0
        self._declared: dict[str, str] = {}
        self._weights: dict[int, str] = {}

    def emit(self, instruction: str) -> str:
        """Append an instruction with a result; return the result's name."""
        name = f"%v{self._names}"
        self._names += 1
        self.lines.append(f"  {name} = {instruction}")
        return name

    def emit_void(self, instruction: str) -> None:
        """Append an instruction without a result."""
        self.lines.append(f"  {instruction}")

    def select(self, condition: str, t: str, x: str, y: str) -> str:
        """Emit a select, lane by lane if `t` is a vector."""
        return self.emit(f"select {with_element(t, 'i1')} {condition}, {t} {x}, {t} {y}")

    def intrinsic(self, name: str, t: str, *operands: str) -> str:
        """Call `llvm.name` of type `t`, whose operands all have type `t`."""
        return self.call(f"llvm.{name}.{intrinsic_suffix(t)}", t, (t,) * len(operands), *operands)

    def call(self, function: str, result: str, types: tuple[str, ...], *operands: str) -> str:
        """Declare and call a function."""
        self._declared[function] = f"declare {result} @{function}({', '.join(types)})"
        return self.emit(f"call {result} @{function}({', '.join([f'{t} {x}' for t, x in zip(types, operands)])})")

    def call_masked(self, operation: str, result_type: str, vector_type_name: str, *operands: tuple[str, str]) -> str:
        """Call `llvm.masked.name` on vectors of type `vector_type_name` with (type, value) operands; return the result's name,
        empty for void."""
        pointers = intrinsic_suffix(with_element(vector_type_name, "ptr")) if operation in ("gather", "scatter") else "p0"
        function = f"llvm.masked.{operation}.{intrinsic_suffix(vector_type_name)}.{pointers}"
        self._declared[function] = f"declare {result_type} @{function}({', '.join([kind for kind, _ in operands])})"
        call = f"call {result_type} @{function}({', '.join([f'{kind} {x}' for kind, x in operands])})"
        if result_type != "void":
            return self.emit(call)
        self.emit_void(call)
        return ""

    def insert_lanes_into_zero_vector(self, element_type: str, lanes: Sequence[str]) -> str:
        """Build a vector from scalars of type `element_type`."""
        kind, vector = vector_type(element_type, len(lanes)), "zeroinitializer"
        for k, x in enumerate(lanes):
            vector = self.emit(f"insertelement {kind} {vector}, {element_type} {x}, i64 {k}")
        return vector

    def label(self, name: str) -> None:
        """Start a block."""
        self.lines.append(f"{name}:")
        self.block = name

    def jump(self, name: str) -> None:
        """Emit an unconditional branch."""
        self.emit_void(f"br label %{name}")

    def branch(self, condition: str, then: str, other: str) -> None:
        """Emit a conditional branch."""
        self.emit_void(f"br i1 {condition}, label %{then}, label %{other}")

    def branch_with_trip_count(self, condition: str, body: str, done: str, trip_count: int) -> None:
        """Emit the test of a loop with this trip count as its branch weight.

        LLVM keeps the most frequently used values in registers, and assumes that an inner loop is long unless it has weights.
        """
        weights = self._weights.setdefault(trip_count, f"!{len(self._weights)}")
        self.emit_void(f"br i1 {condition}, label %{body}, label %{done}, !prof {weights}")

    @property
    def declarations(self) -> list[str]:
        """The declarations of functions, and the metadata, that the function uses."""
        weights = [f'{name} = !{{!"branch_weights", i32 {times}, i32 1}}' for times, name in self._weights.items()]
        return [*[self._declared[name] for name in sorted(self._declared)], *weights]
