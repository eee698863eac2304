"""Functions of the process itself, written as LLVM IR text: structured control flow over untyped memory.

Kernels are rendered from graphs; what calls them - the entry from Python, the threads - is written with this. A value is its
operand's text; words are 64 bits; an address is `ptr` and an offset is bytes. `Code.text` gives the function, `module` a module.
Locals are stack slots that LLVM turns into registers.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

#: A parameter or an operand: its type and its text.
Typed = tuple[str, str]
#: What an offset or a count may be.
Word = int | str
_ALIGN = {"i8": 1, "i32": 4, "i64": 8, "ptr": 8}


class Code:
    """One function in the making. `result` is its type; `params` are typed names, without the percent sign."""

    def __init__(self, name: str, result: str, *params: Typed, internal: bool = False) -> None:
        self.name, self.result, self.params = name, result, params
        self.linkage = "internal " if internal else ""
        self.slots: list[str] = []
        self.lines: list[str] = []
        self.calls: dict[str, str] = {}
        self.count = 0
        self.closed = False  # the block that is being filled has its terminator

    # Values

    def fresh(self, letter: str = "v") -> str:
        self.count += 1
        return f"%{letter}{self.count}"

    def emit(self, instruction: str) -> str:
        """An instruction with a result."""
        name = self.fresh()
        self.lines.append(f"  {name} = {instruction}")
        return name

    def do(self, instruction: str) -> None:
        self.lines.append(f"  {instruction}")

    def at(self, p: str, offset: Word) -> str:
        """The address `offset` bytes after `p`."""
        return p if offset == 0 else self.emit(f"getelementptr i8, ptr {p}, i64 {offset}")

    def load(self, t: str, p: str, offset: Word = 0, align: int = 0) -> str:
        return self.emit(f"load {t}, ptr {self.at(p, offset)}, align {align or _ALIGN[t]}")

    def store(self, t: str, x: Word, p: str, offset: Word = 0) -> None:
        self.do(f"store {t} {x}, ptr {self.at(p, offset)}, align {_ALIGN[t]}")

    def word(self, p: str, k: Word) -> str:
        """Word number k after `p`."""
        return self.load("i64", self.slot(p, k))

    def pointer(self, p: str, k: Word) -> str:
        """Word number k after `p`, as an address."""
        return self.load("ptr", self.slot(p, k))

    def slot(self, p: str, k: Word) -> str:
        """The address of word number k after `p`."""
        return p if k == 0 else self.emit(f"getelementptr i64, ptr {p}, i64 {k}")

    def op(self, name: str, x: Word, y: Word, t: str = "i64") -> str:
        return self.emit(f"{name} {t} {x}, {y}")

    def test(self, relation: str, x: Word, y: Word, t: str = "i64") -> str:
        return self.emit(f"icmp {relation} {t} {x}, {y}")

    def choose(self, condition: str, t: str, x: Word, y: Word) -> str:
        return self.emit(f"select i1 {condition}, {t} {x}, {t} {y}")

    def local(self, t: str, value: Word) -> str:
        """A variable of this function: its address."""
        name = self.fresh("x")
        self.slots.append(f"  {name} = alloca {t}")
        self.store(t, value, name)
        return name

    def table(self, words: Word) -> str:
        """As many words of the stack, 64-byte aligned, of the running call."""
        return self.emit(f"alloca i64, i64 {words}, align 64")

    def call(self, function: str, result: str, *operands: Typed) -> str:
        """Call a function by name; gives its result, empty for void."""
        self.calls[function] = f"declare {result} @{function}({', '.join(t for t, _ in operands)})"
        return self._call(f"@{function}", result, operands)

    def through(self, address: str, result: str, *operands: Typed) -> str:
        """Call the function at an address."""
        return self._call(address, result, operands)

    def _call(self, callee: str, result: str, operands: Iterable[Typed]) -> str:
        text = f"call {result} {callee}({', '.join(f'{t} {x}' for t, x in operands)})"
        if result != "void":
            return self.emit(text)
        self.do(text)
        return ""

    # Control

    def label(self, name: str) -> None:
        """Start the block `%name`, into which the one before runs."""
        self.jump(name)
        self.lines.append(f"{name.removeprefix('%')}:")
        self.closed = False

    def block(self, name: str) -> None:
        """Start the block `%name`, which is only jumped to."""
        if not self.closed:
            raise ValueError(f"{self.name} runs into {name}")
        self.lines.append(f"{name.removeprefix('%')}:")
        self.closed = False

    def jump(self, name: str) -> None:
        if not self.closed:
            self.do(f"br label {name}")
            self.closed = True

    def branch(self, condition: str, then: str, other: str) -> None:
        self.do(f"br i1 {condition}, label {then}, label {other}")
        self.closed = True

    def leave(self, value: str = "") -> None:
        """Return."""
        self.do(f"ret {self.result} {value}".rstrip())
        self.closed = True

    def unless(self, condition: str, target: str) -> None:
        """Go on where the condition holds, else at `target`."""
        on = self.fresh("b")
        self.branch(condition, on, target)
        self.block(on)

    @contextmanager
    def when(self, condition: str) -> Iterator[None]:
        """A block for where the condition holds."""
        then, after = self.fresh("b"), self.fresh("b")
        self.branch(condition, then, after)
        self.block(then)
        yield
        self.label(after)

    @contextmanager
    def forever(self) -> Iterator[str]:
        """A loop that only a jump, to the label that it gives or further, leaves."""
        again, after = self.fresh("b"), self.fresh("b")
        self.label(again)
        yield after
        self.jump(again)
        self.block(after)

    @contextmanager
    def each(self, count: Word, first: Word = 0) -> Iterator[str]:
        """A loop over numbers from `first` up to `count`, which it does not reach."""
        k = self.local("i64", first)
        with self.forever() as done:
            now = self.load("i64", k)
            self.unless(self.test("slt", now, count), done)
            yield now
            self.store("i64", self.op("add", now, 1), k)

    def text(self) -> str:
        if not self.closed:
            raise ValueError(f"{self.name} runs out of its end")
        params = ", ".join(f"{t} %{name}" for t, name in self.params)
        head = f"define {self.linkage}{self.result} @{self.name}({params}) #0 {{"
        return "\n".join([head, "start:", *self.slots, *self.lines, "}"])


def module(functions: Iterable[Code], globals_: Iterable[str] = ()) -> str:
    """The module of these functions; what they call and none of them is, is declared."""
    made = list(functions)
    own = {f.name for f in made}
    foreign = {name: text for f in made for name, text in f.calls.items() if name not in own}
    attributes = "attributes #0 = { nounwind }"
    return "\n\n".join([*globals_, *(f.text() for f in made), *(foreign[n] for n in sorted(foreign)), attributes]) + "\n"
