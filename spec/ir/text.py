"""The `.uops` text format: one node per line, sources before users, the last node is the root.

    %0 = param (2, 3), slot=0 : f32
    %1 = const 1.5 : f32
    %2 = add %0, %1                      ; a comment runs to the end of the line
    %3 = reduce %2, op=add, axes=[1]

A line is `%name = op operand, ..., field=value, ... : dtype`. An operand is a name, a bare integer (an index Const) or `(a, b)`, a
Stack of such operands, as shape operands are. `: dtype` is the field `dtype` of the node's arg. Fields at their default are left
out. Values are integers, floats (`nan`, `inf`, `nan:0x7ff8000000000001` with the payload of a float64), `true`, `false`, `none`,
JSON strings, `[lists]`, `0xbytes`, and names of ops, dtypes, axis types and address spaces. `tag=value` is the node's tag, in which
no NaN may stand: tags are compared by `==`.

`parse(show(g)) is g`. `parse` accepts untrusted text. It raises SpecError with line and column, takes time and memory linear in the
text and evaluates nothing. Only lists are parsed recursively, and they nest at most 8 deep. `uops.spec.verify.verifier` checks
whether the graph is well-formed.
"""

from __future__ import annotations

import copyreg
import json
import math
import re
import struct
from collections.abc import Callable
from typing import Any, NamedTuple

from uops.spec.errors import SpecError, SpecTypeError, SpecValueError
from uops.spec.ir import dtypes as dt
from uops.spec.ir.args import ARG_OPTIONAL, ARG_TYPE, AddrSpace, ConstArg, VConstArg
from uops.spec.ir.axes import AxisType
from uops.spec.ir.dtypes import DType
from uops.spec.ir.fields import FIELDS, OPS_BY_NAME, resolve_words_or_raise_value_error
from uops.spec.ir.node import IllFormedUOp, UOp, toposort
from uops.spec.ir.ops import Op
from uops.spec.untrusted import BadFile, describe_path, escape_unprintable, read_text

#: Decimal digits that a number may have: those of 2 ** dtypes.INDEX_BITS.
MAX_DIGITS = 1234
#: Levels that lists may nest.
MAX_DEPTH = 8
#: Bytes that a file may have.
MAX_FILE = 1 << 26
#: Elements of the longest Stack that is written as an operand.
_MAX_INLINE = 8

# ---------------------------------------------------------------------------------------------------------------- show


def show(root: UOp, *, types: bool = False) -> str:
    """Return the text of a graph; with `types`, a comment after each line gives the derived dtype and shape."""
    names = name_nodes(root)
    lines = (format_node_as_line(u, names) + (f"  ; {_format_dtype_and_shape(u)}" if types else "") for u in names)
    return "\n".join(lines) + "\n"


def _pickle_as_text(u: UOp) -> tuple[Callable[[str], Any], tuple[str]]:
    """Reduce a node to its text, so that pickling a deep graph does not recurse."""
    return parse, (show(u),)


copyreg.pickle(UOp, _pickle_as_text)
copyreg.pickle(IllFormedUOp, _pickle_as_text)


def name_nodes(root: UOp) -> dict[UOp, str]:
    """Return node -> name for every node with a line of its own, in order. Operands that are written inline have none."""
    order = toposort(root)
    return {u: f"%{k}" for k, u in enumerate(u for u in order if u is root or not _is_inline(u))}


def format_node_as_line(u: UOp, names: dict[UOp, str]) -> str:
    """Return the line of one node, which may be ill-formed, for messages."""
    items = [_format_operand(s, names) for s in u.src]
    fields, dtype = _format_fields_and_dtype(u)
    if u.op is Op.CONST and "value" in fields:
        items.append(fields.pop("value"))
    items += [f"{k}={v}" for k, v in fields.items()]
    if u.tag is not None:
        items.append(f"tag={_format_value(u.tag)}")
    text = f"{names.get(u, '%?')} = {u.op.name.lower()} {', '.join(items)}".rstrip()
    return f"{text} : {dtype}" if dtype else text


def _is_inline(u: UOp) -> bool:
    if u.tag is not None:
        return False
    if _is_index_const(u):
        return True
    return u.op is Op.STACK and len(u.src) <= _MAX_INLINE and all(_is_index_const(s) or _is_index_but_no_stack(s) for s in u.src)


def _is_index_const(u: UOp) -> bool:
    return (
        u.op is Op.CONST and isinstance(u.arg, ConstArg) and u.arg.dtype is dt.index and type(u.arg.value) is int and u.tag is None
    )


def _is_index_but_no_stack(u: UOp) -> bool:
    if u.op is Op.STACK:
        return False
    try:
        return u.dtype is dt.index
    except SpecError:
        return False


def _format_operand(u: UOp, names: dict[UOp, str]) -> str:
    if u in names:
        return names[u]
    if _is_index_const(u):
        return str(u.arg.value)
    if u.op is Op.STACK and _is_inline(u):
        return f"({', '.join(_format_operand(s, names) for s in u.src)})"
    return "%?"


def _format_fields_and_dtype(u: UOp) -> tuple[dict[str, str], str | None]:
    """Return the texts of a node's arg: those of the fields that are written, and its dtype if it has one."""
    if u.arg is None:
        return {}, None
    if type(u.arg) is not ARG_TYPE.get(u.op):
        return {"arg": f"<{u.arg!r}>"}, None
    values = {f.name: getattr(u.arg, f.name) for f in FIELDS[type(u.arg)] if not f.is_default(getattr(u.arg, f.name))}
    dtype = values.pop("dtype", None)
    if not values and dtype is None:  # an arg all of whose fields are default still differs from no arg
        values = {f.name: getattr(u.arg, f.name) for f in FIELDS[type(u.arg)][:1]} if u.op in ARG_OPTIONAL else {}
    return {k: _format_value(v) for k, v in values.items()}, _format_value(dtype) if dtype is not None else None


def _format_value(value: Any) -> str:
    """Return the value of any field as text."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if value is None:
        return "none"
    if isinstance(value, int):
        return str(value) if value.bit_length() <= dt.INDEX_BITS else f"<integer of {value.bit_length()} bits>"
    if isinstance(value, float):
        return _format_float(value)
    if isinstance(value, str):
        return json.dumps(value)
    if isinstance(value, bytes):
        return "0x" + value.hex()
    if isinstance(value, DType):
        return value.short
    if isinstance(value, (Op, AxisType, AddrSpace)):
        return value.name.lower()
    if isinstance(value, ConstArg):
        return _format_value(value.value)
    if isinstance(value, tuple):
        return f"[{', '.join(map(_format_value, value))}]"
    return f"<{value!r}>"


def _format_float(value: float) -> str:
    if value == value:
        return repr(value)
    bits = struct.unpack("<Q", struct.pack("<d", value))[0]
    return "nan" if bits == _QUIET_NAN else f"nan:0x{bits:016x}"


_QUIET_NAN = struct.unpack("<Q", struct.pack("<d", math.nan))[0]


def _format_dtype_and_shape(u: UOp) -> str:
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


def parse(text: str) -> UOp:
    """Return the root of the graph in a text.

    Raises SpecValueError with line and column if the text has a syntax error, and SpecTypeError if `text` is no str.
    """
    return parse_and_locate_nodes(text).root


class NodePlace(NamedTuple):
    """The line of a node in a text, counted from 1, and its name there."""

    line: int
    name: str


class LocatedGraph(NamedTuple):
    """A graph that was read from a text, and the place of each node that has a line there, needed by the root or not."""

    root: UOp
    places: dict[UOp, NodePlace]


def parse_and_locate_nodes(text: str) -> LocatedGraph:
    """Return the graph in a text, as `parse` does, with the first place of each node."""
    if not isinstance(text, str):
        raise SpecTypeError(f"parse expects the text of a graph as a str, got {type(text).__name__}")
    nodes: dict[str, UOp] = {}
    places: dict[UOp, NodePlace] = {}
    root: UOp | None = None
    for n, raw in enumerate(text.split("\n"), 1):
        tokens = _tokenize_line(raw, n)
        if tokens:
            root = _LineParser(tokens, nodes, len(raw) + 1).parse_node_and_bind_name()
            places.setdefault(root, NodePlace(n, tokens[0].text))
    if root is None:
        raise SpecValueError("expected at least one node, got none", line=1, column=1)
    return LocatedGraph(root, places)


def parse_file(path: Any) -> UOp:
    """Parse the graph in a UTF-8 file; raises SpecValueError with a message that begins with the path."""
    return parse_file_and_locate_nodes(path).root


def parse_file_and_locate_nodes(path: Any) -> LocatedGraph:
    """Parse the graph in a UTF-8 file, as `parse_file` does, with the first place of each node."""
    try:
        return parse_and_locate_nodes(read_text(path, max_bytes=MAX_FILE, pipes=True))
    except SpecError as e:
        raise SpecValueError(
            f"{describe_path(path)}: {escape_unprintable(str(e))}", claim=e.claim, line=e.line, column=e.column
        ) from e
    except BadFile as e:
        raise SpecValueError(str(e), line=1, column=1) from e


def _syntax_error(message: str, token: _Token) -> SpecValueError:
    return SpecValueError(f"line {token.line}, column {token.column}: {message}", line=token.line, column=token.column)


def _tokenize_line(text: str, line_number: int) -> list[_Token]:
    """Return the tokens of a line. A line that does not begin with a name is an error and may be huge: return its first token."""
    tokens: list[_Token] = []
    position = 0
    while position < len(text):
        m = _TOKEN.match(text, position)
        if m is None:
            raise _syntax_error(f"unexpected character {text[position]!r}", _Token("", "", line_number, position + 1))
        kind = m.lastgroup or ""
        if kind not in ("space", "comment"):
            tokens.append(_Token(kind, m.group(), line_number, position + 1))
            if tokens[0].kind != "name":
                break
        position = m.end()
    return tokens


class _LineParser:
    """A recursive-descent parser of one line; `nodes` has the nodes of the lines before it by name."""

    def __init__(self, tokens: list[_Token], nodes: dict[str, UOp], width: int) -> None:
        self.tokens, self.nodes, self.position = tokens, nodes, 0
        self.end_token = _Token("end", "end of line", tokens[0].line, width)

    def peek(self) -> _Token:
        return self.tokens[self.position] if self.position < len(self.tokens) else self.end_token

    def expect(self, kind: str, text: str | None = None) -> _Token:
        t = self.peek()
        if t.kind != kind or (text is not None and t.text != text):
            raise _syntax_error(f"expected {text or kind}, got {t.text}", t)
        self.position += 1
        return t

    def accept_punctuation(self, text: str) -> bool:
        if self.peek().kind == "punct" and self.peek().text == text:
            self.position += 1
            return True
        return False

    def parse_node_and_bind_name(self) -> UOp:
        name = self.expect("name")
        if name.text in self.nodes:
            raise _syntax_error(f"{name.text} is already defined", name)
        self.expect("punct", "=")
        word = self.expect("word")
        op = OPS_BY_NAME.get(word.text)
        if op is None:
            raise _syntax_error(f"unknown op {word.text}", word)
        src, fields = self.parse_sources_and_fields(op)
        if self.accept_punctuation(":"):
            t = self.expect("word")
            if t.text not in dt.SHORT:
                raise _syntax_error(f"unknown dtype {t.text}", t)
            if "dtype" in fields:
                raise _syntax_error("field dtype is given twice", t)
            fields["dtype"] = (dt.SHORT[t.text], t)
        if self.peek() is not self.end_token:
            raise _syntax_error(f"expected end of line, got {self.peek().text}", self.peek())
        tag, tag_token = fields.pop("tag", (None, word))
        if _contains_nan(tag):
            raise _syntax_error("expected a tag without NaN, which is not equal to itself", tag_token)
        u = UOp(op, tuple(src), self.build_arg(op, fields, word), tag)
        self.nodes[name.text] = u
        return u

    def parse_sources_and_fields(self, op: Op) -> tuple[list[UOp], dict[str, tuple[Any, _Token]]]:
        """Parse operands and fields; return the sources, and the values of the fields and of `tag` with their tokens."""
        src: list[UOp] = []
        fields: dict[str, tuple[Any, _Token]] = {}
        while self.peek() is not self.end_token and self.peek().text != ":":
            t = self.peek()
            if t.kind == "word" and self.position + 1 < len(self.tokens) and self.tokens[self.position + 1].text == "=":
                self.position += 2
                if t.text in fields:
                    raise _syntax_error(f"field {t.text} is given twice", t)
                fields[t.text] = (self.parse_value(0), t)
            elif op is Op.CONST:
                if "value" in fields:
                    raise _syntax_error("expected one value of a const, got another", t)
                fields["value"] = (self.parse_value(0), t)
            else:
                src.append(self.parse_operand(True))
            if not self.accept_punctuation(","):
                break
        return src, fields

    def parse_operand(self, allow_stack: bool) -> UOp:
        t = self.peek()
        if t.kind == "name":
            self.position += 1
            if t.text not in self.nodes:
                raise _syntax_error(f"{t.text} is used before it is defined", t)
            return self.nodes[t.text]
        if t.kind == "number":
            v = self.parse_value(0)
            if type(v) is not int:
                raise _syntax_error(f"expected a name, an integer or (...) as an operand, got {t.text}", t)
            return UOp(Op.CONST, (), ConstArg(v, dt.index))
        if allow_stack and self.accept_punctuation("("):
            src = list(self.parse_sequence(")", lambda: self.parse_operand(False)))
            return UOp(Op.STACK, tuple(src))
        raise _syntax_error(f"expected an operand or field=value, got {t.text}", t)

    def parse_sequence(self, close: str, parse_item: Any) -> list[Any]:
        items = []
        while not self.accept_punctuation(close):
            items.append(parse_item())
            if not self.accept_punctuation(","):
                self.expect("punct", close)
                break
        return items

    def parse_value(self, depth: int) -> Any:
        t = self.peek()
        self.position += 1
        if t.kind == "number":
            return _parse_number(t)
        if t.kind == "nan":
            value = struct.unpack("<d", struct.pack("<Q", int(t.text[6:], 16)))[0]
            if not math.isnan(value):
                raise _syntax_error(f"expected the bits of a NaN, got those of {value}", t)
            return value
        if t.kind == "bytes":
            if len(t.text) % 2:
                raise _syntax_error(f"expected an even number of hex digits, got {len(t.text) - 2}", t)
            return bytes.fromhex(t.text[2:])
        if t.kind == "string":
            try:
                string = json.loads(t.text)
                string.encode()  # raises for half of a surrogate pair
                return string
            except ValueError as e:
                raise _syntax_error(f"bad string: {e}", t) from e
        if t.kind == "word":
            return _WORDS.get(t.text, _BareWord(t.text))
        if t.text == "[" and t.kind == "punct":
            if depth >= MAX_DEPTH:
                raise _syntax_error(f"expected lists nested at most {MAX_DEPTH} deep", t)
            return tuple(self.parse_sequence("]", lambda: self.parse_value(depth + 1)))
        raise _syntax_error(f"expected a value, got {t.text}", t)

    def build_arg(self, op: Op, fields: dict[str, tuple[Any, _Token]], op_token: _Token) -> Any:
        kind = ARG_TYPE.get(op)
        if not fields and (kind is None or op in ARG_OPTIONAL):
            return None
        if kind is None:
            name, (_, t) = next(iter(fields.items()))
            raise _syntax_error(f"{op_token.text} has no field {name}", t)
        field_names = [f.name for f in FIELDS[kind]]
        for name, (_, t) in fields.items():
            if name not in field_names:
                raise _syntax_error(f"{op_token.text} has no field {name}; it has {', '.join(field_names)}", t)
        values: dict[str, Any] = {}
        for f in FIELDS[kind]:
            if f.name in fields:
                v, t = fields[f.name]
                try:
                    values[f.name] = resolve_words_or_raise_value_error(f, v)
                except ValueError as e:
                    raise _syntax_error(f"field {f.name} of {op_token.text}: {e}", t) from e
            elif f.required:
                raise _syntax_error(f"{op_token.text} needs the field {f.name}", op_token)
        return kind(**_convert_ints_of_float_consts(kind, values))


class _BareWord(str):
    """A bare word in value position, as opposed to a string."""

    __slots__ = ()


_WORDS: dict[str, Any] = {"true": True, "false": False, "none": None}


def _contains_nan(value: Any) -> bool:
    """Return True if a value, or an element of a list, is a NaN."""
    return any(map(_contains_nan, value)) if isinstance(value, tuple) else isinstance(value, float) and math.isnan(value)


def _parse_number(token: _Token) -> int | float:
    body = token.text.lstrip("+-")
    if len(body) > MAX_DIGITS:
        raise _syntax_error(f"expected a number of at most {MAX_DIGITS} digits, got {len(body)}", token)
    if body.isdigit():
        return int(token.text)
    return float(token.text)


def _convert_ints_of_float_consts(arg_class: type, values: dict[str, Any]) -> dict[str, Any]:
    """Convert integer literals of float Consts to floats."""
    if arg_class is ConstArg:
        values["value"] = _convert_to_float(values["value"], values["dtype"])
    if arg_class is VConstArg:
        values["values"] = tuple(ConstArg(_convert_to_float(v, values["dtype"]), values["dtype"]) for v in values["values"])
    return values


def _convert_to_float(v: Any, d: DType) -> Any:
    return float(v) if d.is_float and type(v) is int and abs(v) < 1 << 1023 else v
