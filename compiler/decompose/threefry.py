"""Threefry2x32 as adds, rotates and xors (R22; Salmon, Moraes, Dror and Shaw, 2011).

Counter and key are two words each, with the low word first in the uint64; so is the result.
"""

from __future__ import annotations

from uops.compiler.decompose.build import Shape, build_constant_or_stack_of_copies
from uops.spec.ir import build as B
from uops.spec.ir import dtypes as dt
from uops.spec.ir.node import UOp
from uops.spec.ir.ops import Op

#: Rotation counts of eight rounds, the key schedule's parity, and the rounds between two additions of a key.
ROTATIONS = (13, 15, 26, 6, 17, 29, 16, 24)
PARITY = 0x1BD11BDA
ROUNDS = 20
ROUNDS_PER_KEY = 4


def decompose_threefry(u: UOp) -> UOp:
    """Return the graph of one Threefry node, on uint32 words."""
    x0, x1 = _split_words(u.lhs)
    k0, k1 = _split_words(u.rhs)
    shape = u.shape
    keys = (k0, k1, _xor(_xor(k0, k1), _uint32_constant(PARITY, shape)))
    x0, x1 = _add(x0, keys[0]), _add(x1, keys[1])
    for n in range(ROUNDS):
        x0 = _add(x0, x1)
        x1 = _xor(_rotate(x1, ROTATIONS[n % len(ROTATIONS)], shape), x0)
        if (n + 1) % ROUNDS_PER_KEY == 0:
            s = (n + 1) // ROUNDS_PER_KEY
            x0 = _add(x0, keys[s % 3])
            x1 = _add(_add(x1, keys[(s + 1) % 3]), _uint32_constant(s, shape))
    high = UOp(Op.SHL, (B.cast(x1, dt.uint64), build_constant_or_stack_of_copies(32, dt.uint64, shape)))
    return UOp(Op.OR, (high, B.cast(x0, dt.uint64)))


def _uint32_constant(n: int, shape: Shape) -> UOp:
    return build_constant_or_stack_of_copies(n, dt.uint32, shape)


def _split_words(x: UOp) -> tuple[UOp, UOp]:
    """Return the low and the high word of a uint64."""
    return B.cast(x, dt.uint32), B.cast(UOp(Op.SHR, (x, build_constant_or_stack_of_copies(32, dt.uint64, x.shape))), dt.uint32)


def _add(a: UOp, b: UOp) -> UOp:
    return UOp(Op.ADD, (a, b))


def _xor(a: UOp, b: UOp) -> UOp:
    return UOp(Op.XOR, (a, b))


def _rotate(x: UOp, n: int, shape: Shape) -> UOp:
    return UOp(Op.OR, (UOp(Op.SHL, (x, _uint32_constant(n, shape))), UOp(Op.SHR, (x, _uint32_constant(32 - n, shape)))))
