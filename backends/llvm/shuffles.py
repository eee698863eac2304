"""Vectors built from scalars and from lanes of other vectors: Stack, and Index of a value.

Takes: an IRBuilder and a node. Gives: the name of the result. No lane is ever undefined: a vector is filled from zeros.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from uops.backends.llvm.builder import IRBuilder
from uops.backends.llvm.types import lanes_of, llvm_type_of_value, render_literal, value_type, vector_type
from uops.spec.errors import Unsupported
from uops.spec.ir.node import UOp
from uops.spec.ir.ops import Op

#: Gives the operand of a node.
Operand = Callable[[UOp], str]


def render_vector_literal(u: UOp) -> str:
    """Return a Stack of constants as a literal."""
    t = value_type(u.dtype)
    first = u.src[0]  # the first element
    if u.src.count(first) == len(u.src):
        return f"splat ({t} {render_literal(first.arg.value, u.dtype)})"
    if u.dtype.is_integer:
        return f"<{', '.join([f'{t} {s.arg.value}' for s in u.src])}>"
    return f"<{', '.join([f'{t} {render_literal(s.arg.value, u.dtype)}' for s in u.src])}>"


def is_lane_at_constant_position(u: UOp) -> bool:
    """Return True if a node is one lane of a vector at a constant position; it is extracted at each use."""
    if u.op is not Op.INDEX:
        return False
    operand, *positions = u.src
    return len(positions) == 1 and positions[0].op is Op.CONST and operand.shape != ()


def extract_lane(b: IRBuilder, u: UOp, operand: Operand) -> str:
    """Emit the extraction of a lane."""
    return b.emit(f"extractelement {llvm_type_of_value(u.operand)} {operand(u.operand)}, i64 {u.positions[0].arg.value}")


def emit_constant_lane_shuffle(b: IRBuilder, u: UOp, operand: Operand) -> str:
    """Emit the selection of several lanes of a vector, at constant positions. Raises Unsupported."""
    vector, *positions = u.src  # operand, positions
    lanes = positions[0].constants_of_stack if len(positions) == 1 else None
    if lanes is None:
        raise Unsupported("lanes of a vector that are not constant", "llvm")
    return _emit_shuffle(b, vector, vector, lanes, operand)


def emit_stack_vector(b: IRBuilder, u: UOp, operand: Operand) -> str:
    """Emit a Stack: of one scalar, of lanes of at most two vectors, or of any scalars."""
    w, t = lanes_of(u), value_type(u.dtype)
    kind, first = llvm_type_of_value(u), u.elements[0]
    if u.src.count(first) == len(u.src):
        alone = b.emit(f"insertelement {kind} zeroinitializer, {t} {operand(first)}, i64 0")
        return b.emit(f"shufflevector {kind} {alone}, {kind} zeroinitializer, <{w} x i32> zeroinitializer")
    if all(map(is_lane_at_constant_position, u.src)):
        sources = list(dict.fromkeys(s.operand for s in u.src))
        if len(sources) <= 2 and sources[0].shape == sources[-1].shape:
            width = lanes_of(sources[0])
            at = [s.positions[0].arg.value + (width if s.operand is not sources[0] else 0) for s in u.src]
            return _emit_shuffle(b, sources[0], sources[-1], at, operand)
    return b.insert_lanes_into_zero_vector(t, [operand(s) for s in u.src])


def _emit_shuffle(b: IRBuilder, x: UOp, y: UOp, mask_positions: Sequence[int], operand: Operand) -> str:
    """Emit a shuffle of two vectors."""
    t = llvm_type_of_value(x)
    mask = ", ".join(f"i32 {k}" for k in mask_positions)
    return b.emit(f"shufflevector {t} {operand(x)}, {t} {operand(y)}, {vector_type('i32', len(mask_positions))} <{mask}>")
