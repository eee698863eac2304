"""Rules of machine integers of every width, modulo 2^n (R05, integer overflow), and of index, that need no condition on overflow.

The integers modulo 2^n are a commutative ring with 0 and 1, and bitwise operations form a lattice on their bits. The rules are laws
of the ring and the lattice.
"""

from __future__ import annotations

from uops.compiler.rewrite.pattern import ALL_INTS, as_pattern, maximum, operation, var
from uops.compiler.rewrite.rule import Rule
from uops.spec.ir.ops import Op

x = var("x", ALL_INTS)
zero = as_pattern(0)
negated = -x

RULES = (
    # Ring: 0 is neutral for +, 1 for *, and 0 absorbs.
    Rule("add-zero", x + 0, x),
    Rule("sub-zero", x - 0, x),
    Rule("sub-self", x - x, zero),
    Rule("mul-one", x * 1, x),
    Rule("mul-zero", x * 0, zero),
    Rule("neg-neg", -negated, x),
    # Lattice of bits.
    Rule("and-zero", x & 0, zero),
    Rule("and-self", x & x, x),
    Rule("or-zero", x | 0, x),
    Rule("or-self", x | x, x),
    Rule("xor-zero", x ^ 0, x),
    Rule("xor-self", x ^ x, zero),
    Rule("shl-zero", x << 0, x),
    Rule("shr-zero", x >> 0, x),
    Rule("max-self", maximum(x, x), x),
    Rule("trunc-integer", operation(Op.TRUNC, x), x),
    # Division by 1, and by 0: x // 0 = 0 and x % 0 = x (R03, division by zero).
    Rule("idiv-one", x // 1, x),
    Rule("imod-one", x % 1, zero),
    Rule("idiv-zero", x // 0, zero),
    Rule("imod-zero", x % 0, x),
)
