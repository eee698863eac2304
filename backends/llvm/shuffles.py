"""Vectors made of scalars and of lanes of other vectors: Stack, and Index of a value.

No lane is ever left undefined: a vector is filled from zeros.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from uops.backends.llvm.builder import Builder
from uops.backends.llvm.types import lanes_of, literal, type_of, value_type, wide
from uops.spec.errors import Unsupported
from uops.spec.ir.node import UOp
from uops.spec.ir.ops import Op

Operand = Callable[[UOp], str]


def vector_literal(u: UOp) -> str:
    """A Stack of constants."""
    t = value_type(u.dtype)
    first = u.src[0]
    if u.src.count(first) == len(u.src):
        return f"splat ({t} {literal(first.arg.value, u.dtype)})"
    if u.dtype.is_integer:
        return f"<{', '.join([f'{t} {s.arg.value}' for s in u.src])}>"
    return f"<{', '.join([f'{t} {literal(s.arg.value, u.dtype)}' for s in u.src])}>"


def is_lane(u: UOp) -> bool:
    """Whether a node is one lane of a vector, by a constant: it is taken where it is used."""
    return u.op is Op.INDEX and len(u.src) == 2 and u.src[1].op is Op.CONST and u.src[0].shape != ()


def lane(b: Builder, u: UOp, operand: Operand) -> str:
    return b.emit(f"extractelement {type_of(u.src[0])} {operand(u.src[0])}, i64 {u.src[1].arg.value}")


def pick(b: Builder, u: UOp, operand: Operand) -> str:
    """Several lanes of a vector."""
    positions = u.src[1].spelt if len(u.src) == 2 else None
    if positions is None:
        raise Unsupported("lanes of a vector that are not constant", "llvm")
    source = u.src[0]
    return _shuffle(b, source, source, positions, operand)


def join(b: Builder, u: UOp, operand: Operand) -> str:
    """A Stack: of one scalar, of lanes of at most two vectors, or of any scalars."""
    w, t = lanes_of(u), value_type(u.dtype)
    kind, first = type_of(u), u.src[0]
    if u.src.count(first) == len(u.src):
        alone = b.emit(f"insertelement {kind} zeroinitializer, {t} {operand(first)}, i64 0")
        return b.emit(f"shufflevector {kind} {alone}, {kind} zeroinitializer, <{w} x i32> zeroinitializer")
    if all(map(is_lane, u.src)):
        sources = list(dict.fromkeys(s.src[0] for s in u.src))
        if len(sources) <= 2 and sources[0].shape == sources[-1].shape:
            width = lanes_of(sources[0])
            at = [s.src[1].arg.value + (width if s.src[0] is not sources[0] else 0) for s in u.src]
            return _shuffle(b, sources[0], sources[-1], at, operand)
    return b.gathered(t, [operand(s) for s in u.src])


def _shuffle(b: Builder, x: UOp, y: UOp, lanes: Sequence[int], operand: Operand) -> str:
    t = type_of(x)
    mask = ", ".join(f"i32 {k}" for k in lanes)
    return b.emit(f"shufflevector {t} {operand(x)}, {t} {operand(y)}, {wide('i32', len(lanes))} <{mask}>")
