"""The `.uops` text format: one node per line, sources before users, the last node is the root.

    %0 = param (2, 3), slot=0 : f32
    %1 = const 1.5 : f32
    %2 = add %0, %1                      ; a comment runs to the end of the line
    %3 = reduce %2, op=add, axes=[1]

A line is `%name = op operand, ..., field=value, ... : dtype`. An operand is a name, a bare integer (an index Const) or `(a, b)`
(a Stack of such operands, as shape operands are). `: dtype` is the field `dtype` of the node's arg; fields at their default are
left out. Values: integers, floats (`nan`, `inf`, `nan:0x7ff8000000000001` with the payload of a float64), `true`, `false`,
`none`, JSON strings, `[lists]`, `0xbytes`, and names of ops, dtypes, axis types and address spaces. `tag=value` is the node's tag.

`parse(show(g)) is g`. `parse` takes hostile text: it raises SpecError with line and column, needs time and memory linear in the
text, never evaluates anything and has no recursion but for lists, which nest at most 8 deep. It does not judge meaning: see
`uops.spec.verify.verifier`.
"""

from __future__ import annotations

import copyreg
import json
import math
import re
import struct
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from uops.spec.errors import SpecError, SpecTypeError, SpecValueError
from uops.spec.ir import dtypes as dt
from uops.spec.ir.args import ARG_OPTIONAL, ARG_TYPE, AddrSpace, ConstArg, VConstArg
from uops.spec.ir.axes import AxisType
from uops.spec.ir.dtypes import DType
from uops.spec.ir.fields import FIELDS, coerce
from uops.spec.ir.node import Underived, UOp, toposort
from uops.spec.ir.ops import Op
from uops.spec.untrusted import BadFile, describe_path, printable, read_text

MAX_DIGITS = 1234  # of 2 ** dtypes.INDEX_BITS
MAX_DEPTH = 8
MAX_FILE = 1 << 26  # bytes
_INLINE = 8  # longest Stack written as an operand

# ---------------------------------------------------------------------------------------------------------------- show


def show(root: UOp, *, types: bool = False) -> str:
    """The text of `root`; with `types`, a comment after each line gives the derived dtype and shape."""
    names = number(root)
    lines = (line(u, names) + (f"  ; {_type(u)}" if types else "") for u in names)
    return "\n".join(lines) + "\n"


def _pickle(u: UOp) -> tuple[Callable[[str], Any], tuple[str]]:
    """Nodes cross processes as text."""
    return parse, (show(u),)


copyreg.pickle(UOp, _pickle)
copyreg.pickle(Underived, _pickle)


def number(root: UOp) -> dict[UOp, str]:
    """The name of every node that has a line of its own, in order; operands written inline have none."""
    order = toposort(root)
    return {u: f"%{k}" for k, u in enumerate(u for u in order if u is root or not _inline(u))}


def line(u: UOp, names: dict[UOp, str]) -> str:
    """One node's line; also of an ill-formed node, for messages."""
    items = [_operand(s, names) for s in u.src]
    fields, dtype = _fields(u)
    if u.op is Op.CONST and "value" in fields:
        items.append(fields.pop("value"))
    items += [f"{k}={v}" for k, v in fields.items()]
    if u.tag is not None:
        items.append(f"tag={_value(u.tag)}")
    text = f"{names.get(u, '%?')} = {u.op.name.lower()} {', '.join(items)}".rstrip()
    return f"{text} : {dtype}" if dtype else text


def _inline(u: UOp) -> bool:
    if u.tag is not None:
        return False
    if _is_index_const(u):
        return True
    return u.op is Op.STACK and len(u.src) <= _INLINE and all(_is_index_const(s) or _is_index(s) for s in u.src)


def _is_index_const(u: UOp) -> bool:
    return (
        u.op is Op.CONST and isinstance(u.arg, ConstArg) and u.arg.dtype is dt.index and type(u.arg.value) is int and u.tag is None
    )


def _is_index(u: UOp) -> bool:
    if u.op is Op.STACK:
        return False
    try:
        return u.dtype is dt.index
    except SpecError:
        return False


def _operand(u: UOp, names: dict[UOp, str]) -> str:
    if u in names:
        return names[u]
    if _is_index_const(u):
        return str(u.arg.value)
    if u.op is Op.STACK and _inline(u):
        return f"({', '.join(_operand(s, names) for s in u.src)})"
    return "%?"


def _fields(u: UOp) -> tuple[dict[str, str], str | None]:
    """The written fields of a node's arg, and its dtype where it has one."""
    if u.arg is None:
        return {}, None
    if type(u.arg) is not ARG_TYPE.get(u.op):
        return {"arg": f"<{u.arg!r}>"}, None
    found = {f.name: getattr(u.arg, f.name) for f in FIELDS[type(u.arg)] if not f.is_default(getattr(u.arg, f.name))}
    dtype = found.pop("dtype", None)
    if not found and dtype is None:  # an arg all of whose fields are default still differs from no arg
        found = {f.name: getattr(u.arg, f.name) for f in FIELDS[type(u.arg)][:1]} if u.op in ARG_OPTIONAL else {}
    return {k: _value(v) for k, v in found.items()}, _value(dtype) if dtype is not None else None


def _value(v: Any) -> str:
    """Any field's value as text."""
    if isinstance(v, bool):
        return "true" if v else "false"
    if v is None:
        return "none"
    if isinstance(v, int):
        return str(v) if v.bit_length() <= dt.INDEX_BITS else f"<integer of {v.bit_length()} bits>"
    if isinstance(v, float):
        return _float(v)
    if isinstance(v, str):
        return json.dumps(v)
    if isinstance(v, bytes):
        return "0x" + v.hex()
    if isinstance(v, DType):
        return v.short
    if isinstance(v, (Op, AxisType, AddrSpace)):
        return v.name.lower()
    if isinstance(v, ConstArg):
        return _value(v.value)
    if isinstance(v, tuple):
        return f"[{', '.join(map(_value, v))}]"
    return f"<{v!r}>"


def _float(v: float) -> str:
    if v == v:
        return repr(v)
    bits = struct.unpack("<Q", struct.pack("<d", v))[0]
    return "nan" if bits == _QUIET_NAN else f"nan:0x{bits:016x}"


_QUIET_NAN = struct.unpack("<Q", struct.pack("<d", math.nan))[0]


def _type(u: UOp) -> str:
    try:
        dims = ", ".join(str(n) if isinstance(n, int) else "?" for n in u.shape)
        return f"{u.dtype.short}" if u.dtype is dt.void else f"{u.dtype.short} ({dims})"
    except SpecError as e:
        return f"ill-formed: {e}"


# --------------------------------------------------------------------------------------------------------------- parse


class _Token(NamedTuple):
    kind: str
    text: str
    line: int
    column: int


_TOKEN = re.compile(
    r"""(?P<space>[ \t\r]+)|(?P<comment>;[^\n]*)|(?P<name>%[A-Za-z0-9_.]+)
    |(?P<nan>nan:0x[0-9a-fA-F]{16})|(?P<bytes>0x[0-9a-fA-F]*)
    |(?P<number>[+-]?(?:inf\b|nan\b|(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?))
    |(?P<word>[A-Za-z_][A-Za-z0-9_]*)|(?P<string>"(?:[^"\\\n]|\\.)*")|(?P<punct>[=,:()\[\]])""",
    re.VERBOSE,
)
_OPS = {op.name.lower(): op for op in Op}


def parse(text: str) -> UOp:
    """Return the root of the graph that `text` spells.

    Raises SpecValueError, with line and column, on any other text, and SpecTypeError on what is no text.
    """
    if not isinstance(text, str):
        raise SpecTypeError(f"parse takes the text of a graph, a str, got {type(text).__name__}")
    named: dict[str, UOp] = {}
    root: UOp | None = None
    for n, raw in enumerate(text.split("\n"), 1):
        tokens = _tokens(raw, n)
        if tokens:
            root = _Line(tokens, named, len(raw) + 1).node()
    if root is None:
        raise SpecValueError("the text has no node", line=1, column=1)
    return root


def parse_file(path: Any) -> UOp:
    """`parse` of a UTF-8 file; the error's message begins with the path."""
    try:
        return parse(read_text(path, most=MAX_FILE, pipes=True))
    except SpecError as e:
        raise SpecValueError(f"{describe_path(path)}: {printable(str(e))}", claim=e.claim, line=e.line, column=e.column) from e
    except BadFile as e:
        raise SpecValueError(str(e), line=1, column=1) from e


def _fail(message: str, token: _Token) -> SpecValueError:
    return SpecValueError(f"line {token.line}, column {token.column}: {message}", line=token.line, column=token.column)


def _tokens(raw: str, n: int) -> list[_Token]:
    """The tokens of a line; of one that does not begin with a name, the first, as it may have millions."""
    found: list[_Token] = []
    at = 0
    while at < len(raw):
        m = _TOKEN.match(raw, at)
        if m is None:
            raise _fail(f"unexpected character {raw[at]!r}", _Token("", "", n, at + 1))
        kind = m.lastgroup or ""
        if kind not in ("space", "comment"):
            found.append(_Token(kind, m.group(), n, at + 1))
            if found[0].kind != "name":
                break
        at = m.end()
    return found


class _Line:
    """Recursive-descent parser of one line."""

    def __init__(self, tokens: list[_Token], named: dict[str, UOp], width: int) -> None:
        self.tokens, self.named, self.at = tokens, named, 0
        self.end = _Token("end", "end of line", tokens[0].line, width)

    def peek(self) -> _Token:
        return self.tokens[self.at] if self.at < len(self.tokens) else self.end

    def take(self, kind: str, text: str | None = None) -> _Token:
        t = self.peek()
        if t.kind != kind or (text is not None and t.text != text):
            raise _fail(f"expected {text or kind}, got {t.text}", t)
        self.at += 1
        return t

    def skip(self, text: str) -> bool:
        if self.peek().kind == "punct" and self.peek().text == text:
            self.at += 1
            return True
        return False

    def node(self) -> UOp:
        name = self.take("name")
        if name.text in self.named:
            raise _fail(f"{name.text} is already defined", name)
        self.take("punct", "=")
        word = self.take("word")
        op = _OPS.get(word.text)
        if op is None:
            raise _fail(f"unknown op {word.text}", word)
        src, fields, tag = self.items(op)
        if self.skip(":"):
            t = self.take("word")
            if t.text not in dt.SHORT:
                raise _fail(f"unknown dtype {t.text}", t)
            fields["dtype"] = (dt.SHORT[t.text], t)
        if self.peek() is not self.end:
            raise _fail(f"expected end of line, got {self.peek().text}", self.peek())
        u = UOp(op, tuple(src), self.arg(op, fields, word), tag)
        self.named[name.text] = u
        return u

    def items(self, op: Op) -> tuple[list[UOp], dict[str, tuple[Any, _Token]], Any]:
        src: list[UOp] = []
        fields: dict[str, tuple[Any, _Token]] = {}
        tag: Any = None
        while self.peek() is not self.end and self.peek().text != ":":
            t = self.peek()
            if t.kind == "word" and self.at + 1 < len(self.tokens) and self.tokens[self.at + 1].text == "=":
                self.at += 2
                if t.text in fields or (t.text == "tag" and tag is not None):
                    raise _fail(f"field {t.text} is given twice", t)
                if t.text == "tag":
                    tag = self.value(0)
                else:
                    fields[t.text] = (self.value(0), t)
            elif op is Op.CONST:
                if "value" in fields:
                    raise _fail("a const has one value", t)
                fields["value"] = (self.value(0), t)
            else:
                src.append(self.operand(True))
            if not self.skip(","):
                break
        return src, fields, tag

    def operand(self, stack: bool) -> UOp:
        t = self.peek()
        if t.kind == "name":
            self.at += 1
            if t.text not in self.named:
                raise _fail(f"{t.text} is used before it is defined", t)
            return self.named[t.text]
        if t.kind == "number":
            v = self.value(0)
            if type(v) is not int:
                raise _fail(f"an operand is a name, an integer or (...), got {t.text}", t)
            return UOp(Op.CONST, (), ConstArg(v, dt.index))
        if stack and self.skip("("):
            src = list(self.sequence(")", lambda: self.operand(False)))
            return UOp(Op.STACK, tuple(src))
        raise _fail(f"expected an operand or field=value, got {t.text}", t)

    def sequence(self, close: str, one: Any) -> Iterable[Any]:
        found = []
        while not self.skip(close):
            found.append(one())
            if not self.skip(","):
                self.take("punct", close)
                break
        return found

    def value(self, depth: int) -> Any:
        t = self.peek()
        self.at += 1
        if t.kind == "number":
            return _number(t)
        if t.kind == "nan":
            return struct.unpack("<d", struct.pack("<Q", int(t.text[6:], 16)))[0]
        if t.kind == "bytes":
            if len(t.text) % 2:
                raise _fail("bytes need an even number of hex digits", t)
            return bytes.fromhex(t.text[2:])
        if t.kind == "string":
            try:
                found = json.loads(t.text)
                found.encode()  # raises for half of a surrogate pair
                return found
            except ValueError as e:
                raise _fail(f"bad string: {e}", t) from e
        if t.kind == "word":
            return _WORDS.get(t.text, _Word(t.text))
        if t.text == "[" and t.kind == "punct":
            if depth >= MAX_DEPTH:
                raise _fail(f"lists nest at most {MAX_DEPTH} deep", t)
            return tuple(self.sequence("]", lambda: self.value(depth + 1)))
        raise _fail(f"expected a value, got {t.text}", t)

    def arg(self, op: Op, fields: dict[str, tuple[Any, _Token]], word: _Token) -> Any:
        kind = ARG_TYPE.get(op)
        if not fields and (kind is None or op in ARG_OPTIONAL):
            return None
        if kind is None:
            name, (_, t) = next(iter(fields.items()))
            raise _fail(f"{word.text} has no field {name}", t)
        known = {f.name: f for f in FIELDS[kind]}
        for name, (_, t) in fields.items():
            if name not in known:
                raise _fail(f"{word.text} has no field {name}; it has {', '.join(known)}", t)
        given: dict[str, Any] = {}
        for f in FIELDS[kind]:
            if f.name in fields:
                v, t = fields[f.name]
                try:
                    given[f.name] = coerce(f, v)
                except ValueError as e:
                    raise _fail(f"field {f.name} of {word.text}: {e}", t) from e
            elif f.required:
                raise _fail(f"{word.text} needs the field {f.name}", word)
        return kind(**_with_dtype(kind, given))


class _Word(str):
    """A bare word in value position, told apart from a string."""

    __slots__ = ()


_WORDS: dict[str, Any] = {"true": True, "false": False, "none": None}


def _number(t: _Token) -> int | float:
    body = t.text.lstrip("+-")
    if len(body) > MAX_DIGITS:
        raise _fail(f"a number has at most {MAX_DIGITS} digits", t)
    if body.isdigit():
        return int(t.text)
    return float(t.text)


def _with_dtype(kind: type, given: dict[str, Any]) -> dict[str, Any]:
    """Constants take the kind of number their dtype has."""
    if kind is ConstArg:
        given["value"] = _as_kind(given["value"], given["dtype"])
    if kind is VConstArg:
        given["values"] = tuple(ConstArg(_as_kind(v, given["dtype"]), given["dtype"]) for v in given["values"])
    return given


def _as_kind(v: Any, d: DType) -> Any:
    return float(v) if d.is_float and type(v) is int and abs(v) < 1 << 1023 else v
