"""Functions of the process itself, written as LLVM IR text: structured control flow over untyped memory.

Kernels are rendered from graphs. Their callers - the entry from Python, and the threads - are written with this module. A value is
the text of its operand. A word has 64 bits, an address is `ptr`, and an offset is in bytes. `IRFunction.render` gives the function,
`render_module` a module. Locals are stack slots that LLVM promotes to registers.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

#: A parameter or an operand: its type and its text.
Typed = tuple[str, str]
#: An offset or a count: a number, or an operand.
Word = int | str
_ALIGN = {"i8": 1, "i32": 4, "i64": 8, "ptr": 8}


class IRFunction:
    """A function under construction. `result` is its type; `params` are typed names, without the percent sign."""

    def __init__(self, name: str, result: str, *params: Typed, internal: bool = False) -> None:
        self.name, self.result, self.params = name, result, params
        self.linkage = "internal " if internal else ""
        self.slots: list[str] = []
        self.lines: list[str] = []
        self.calls: dict[str, str] = {}
        self.count = 0
        self.is_terminated = False  # True once the current block has its terminator

    # Values

    def fresh_name(self, letter: str = "v") -> str:
        """Return a new name."""
        self.count += 1
        return f"%{letter}{self.count}"

    def emit(self, instruction: str) -> str:
        """Append an instruction with a result; return the result's name."""
        name = self.fresh_name()
        self.lines.append(f"  {name} = {instruction}")
        return name

    def emit_void(self, instruction: str) -> None:
        """Append an instruction without a result."""
        self.lines.append(f"  {instruction}")

    def byte_address(self, p: str, offset: Word) -> str:
        """Return the address `offset` bytes after `p`."""
        return p if offset == 0 else self.emit(f"getelementptr i8, ptr {p}, i64 {offset}")

    def load(self, t: str, p: str, offset: Word = 0, align: int = 0) -> str:
        """Load a value of type `t`."""
        return self.emit(f"load {t}, ptr {self.byte_address(p, offset)}, align {align or _ALIGN[t]}")

    def store(self, t: str, x: Word, p: str, offset: Word = 0) -> None:
        """Store a value of type `t`."""
        self.emit_void(f"store {t} {x}, ptr {self.byte_address(p, offset)}, align {_ALIGN[t]}")

    def load_word(self, p: str, k: Word) -> str:
        """Load word number k after `p`."""
        return self.load("i64", self.word_address(p, k))

    def load_pointer(self, p: str, k: Word) -> str:
        """Load word number k after `p`, as an address."""
        return self.load("ptr", self.word_address(p, k))

    def word_address(self, p: str, k: Word) -> str:
        """Return the address of word number k after `p`."""
        return p if k == 0 else self.emit(f"getelementptr i64, ptr {p}, i64 {k}")

    def binary(self, name: str, x: Word, y: Word, t: str = "i64") -> str:
        """Emit a binary instruction."""
        return self.emit(f"{name} {t} {x}, {y}")

    def compare(self, relation: str, x: Word, y: Word, t: str = "i64") -> str:
        """Emit an integer comparison."""
        return self.emit(f"icmp {relation} {t} {x}, {y}")

    def select(self, condition: str, t: str, x: Word, y: Word) -> str:
        """Emit a select."""
        return self.emit(f"select i1 {condition}, {t} {x}, {t} {y}")

    def declare_local(self, t: str, value: Word) -> str:
        """Declare a variable of this function; return its address."""
        name = self.fresh_name("x")
        self.slots.append(f"  {name} = alloca {t}")
        self.store(t, value, name)
        return name

    def alloca_words(self, words: Word) -> str:
        """Allocate words on the stack of the running call, 64-byte aligned."""
        return self.emit(f"alloca i64, i64 {words}, align 64")

    def call(self, function: str, result: str, *operands: Typed) -> str:
        """Call a function by name; return its result, empty for void."""
        self.calls[function] = f"declare {result} @{function}({', '.join(t for t, _ in operands)})"
        return self._emit_call_without_declaring(f"@{function}", result, operands)

    def call_address(self, address: str, result: str, *operands: Typed) -> str:
        """Call the function at an address; return its result, empty for void."""
        return self._emit_call_without_declaring(address, result, operands)

    def _emit_call_without_declaring(self, callee: str, result: str, operands: Iterable[Typed]) -> str:
        text = f"call {result} {callee}({', '.join(f'{t} {x}' for t, x in operands)})"
        if result != "void":
            return self.emit(text)
        self.emit_void(text)
        return ""

    # Control

    def fall_into_block(self, name: str) -> None:
        """Start the block `%name`; the block before continues into it."""
        self.jump_unless_terminated(name)
        self.lines.append(f"{name.removeprefix('%')}:")
        self.is_terminated = False

    def start_block(self, name: str) -> None:
        """Start the block `%name`, which is only reached by jumps."""
        if not self.is_terminated:
            raise ValueError(f"{self.name} runs into {name}")
        self.lines.append(f"{name.removeprefix('%')}:")
        self.is_terminated = False

    def jump_unless_terminated(self, name: str) -> None:
        """Emit an unconditional branch, unless the block has ended."""
        if not self.is_terminated:
            self.emit_void(f"br label {name}")
            self.is_terminated = True

    def branch(self, condition: str, then: str, other: str) -> None:
        """Emit a conditional branch."""
        self.emit_void(f"br i1 {condition}, label {then}, label {other}")
        self.is_terminated = True

    def emit_return(self, value: str = "") -> None:
        """Emit a return."""
        self.emit_void(f"ret {self.result} {value}".rstrip())
        self.is_terminated = True

    def branch_unless(self, condition: str, target: str) -> None:
        """Branch to `target` unless the condition holds."""
        on = self.fresh_name("b")
        self.branch(condition, on, target)
        self.start_block(on)

    @contextmanager
    def if_true(self, condition: str) -> Iterator[None]:
        """Emit the instructions of the `with` block under a condition."""
        then, after = self.fresh_name("b"), self.fresh_name("b")
        self.branch(condition, then, after)
        self.start_block(then)
        yield
        self.fall_into_block(after)

    @contextmanager
    def endless_loop(self) -> Iterator[str]:
        """Emit a loop that only jumps leave; yield the label after it."""
        again, after = self.fresh_name("b"), self.fresh_name("b")
        self.fall_into_block(again)
        yield after
        self.jump_unless_terminated(again)
        self.start_block(after)

    @contextmanager
    def counted_loop(self, count: Word, first: Word = 0) -> Iterator[str]:
        """Emit a loop over the integers from `first` up to `count`, exclusive; yield its counter."""
        k = self.declare_local("i64", first)
        with self.endless_loop() as done:
            now = self.load("i64", k)
            self.branch_unless(self.compare("slt", now, count), done)
            yield now
            self.store("i64", self.binary("add", now, 1), k)

    def render(self) -> str:
        """Return the text of the function."""
        if not self.is_terminated:
            raise ValueError(f"{self.name} runs out of its end")
        params = ", ".join(f"{t} %{name}" for t, name in self.params)
        head = f"define {self.linkage}{self.result} @{self.name}({params}) #0 {{"
        return "\n".join([head, "start:", *self.slots, *self.lines, "}"])


def render_module(functions: Iterable[IRFunction], globals_: Iterable[str] = ()) -> str:
    """Return the module of these functions, with declarations of the foreign functions that they call."""
    defined_functions = list(functions)
    defined = {f.name for f in defined_functions}
    foreign = {name: text for f in defined_functions for name, text in f.calls.items() if name not in defined}
    attributes = "attributes #0 = { nounwind }"
    return (
        "\n\n".join([*globals_, *(f.render() for f in defined_functions), *(foreign[n] for n in sorted(foreign)), attributes])
        + "\n"
    )
