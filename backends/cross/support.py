"""Functions that LLVM calls where a processor lacks an instruction, as LLVM IR text.

- `__udivdi3`, `__umoddi3`, `__divdi3`, `__moddi3`: 64-bit division on 32-bit processors.
- `fmaf`, `fma`: fused multiply-add, rounded once.
- `truncf`, `trunc`: truncation toward zero.

Every function is total, as the code that calls it guards divisors.
"""

from __future__ import annotations

from collections.abc import Iterable

#: Division bit by bit: the quotient and the remainder of `%n` by `%d`.
_DIVIDE = """
define internal { i64, i64 } @divide(i64 %n, i64 %d) #0 {
entry:
  br label %step
step:
  %k = phi i64 [ 63, %entry ], [ %k.next, %step ]
  %q = phi i64 [ 0, %entry ], [ %q.next, %step ]
  %r = phi i64 [ 0, %entry ], [ %r.next, %step ]
  %carry = icmp slt i64 %r, 0
  %r.twice = shl i64 %r, 1
  %bit.up = lshr i64 %n, %k
  %bit = and i64 %bit.up, 1
  %r.grown = or i64 %r.twice, %bit
  %covers = icmp uge i64 %r.grown, %d
  %fits = or i1 %carry, %covers
  %less = sub i64 %r.grown, %d
  %r.next = select i1 %fits, i64 %less, i64 %r.grown
  %q.twice = shl i64 %q, 1
  %one = zext i1 %fits to i64
  %q.next = or i64 %q.twice, %one
  %k.next = sub i64 %k, 1
  %more = icmp sge i64 %k.next, 0
  br i1 %more, label %step, label %done
done:
  %a = insertvalue { i64, i64 } poison, i64 %q.next, 0
  %b = insertvalue { i64, i64 } %a, i64 %r.next, 1
  ret { i64, i64 } %b
}
"""


def _render_division_function(name: str, part: int, signed: bool) -> str:
    """Return a function that gives one part of a division: 0 the quotient, truncated, 1 the remainder, with the sign of `%n`."""
    operands = [
        f"""  %{x}.sign = ashr i64 %{x}, 63
  %{x}.flipped = xor i64 %{x}, %{x}.sign
  %{x}.size = sub i64 %{x}.flipped, %{x}.sign"""
        for x in ("n", "d")
    ]
    sign = "  %sign = xor i64 %n.sign, %d.sign" if part == 0 else "  %sign = or i64 %n.sign, 0"
    head = "\n".join([*operands, sign]) if signed else ""
    end = "  %y.flipped = xor i64 %y, %sign\n  %z = sub i64 %y.flipped, %sign\n  ret i64 %z" if signed else "  ret i64 %y"
    sizes = "i64 %n.size, i64 %d.size" if signed else "i64 %n, i64 %d"
    return f"""
define i64 @{name}(i64 %n, i64 %d) #0 {{
{head}
  %both = call {{ i64, i64 }} @divide({sizes})
  %y = extractvalue {{ i64, i64 }} %both, {part}
{end}
}}
"""


def _render_float_trunc_function(name: str, llvm_type: str, bits: int, mantissa_bits: int) -> str:
    """Return a function that clears the bits of a float behind the binary point; a NaN becomes quiet."""
    i, bias, ones = f"i{bits}", (1 << (bits - mantissa_bits - 2)) - 1, (1 << (bits - mantissa_bits - 1)) - 1
    return f"""
define {llvm_type} @{name}({llvm_type} %x) #0 {{
  %w = bitcast {llvm_type} %x to {i}
  %up = lshr {i} %w, {mantissa_bits}
  %e.biased = and {i} %up, {ones}
  %e = sub {i} %e.biased, {bias}
  %small = icmp slt {i} %e, 0
  %whole = icmp sge {i} %e, {mantissa_bits}
  %either = or i1 %small, %whole
  %shift = select i1 %either, {i} 0, {i} %e
  %fraction = lshr {i} {(1 << mantissa_bits) - 1}, %shift
  %kept = xor {i} %fraction, -1
  %cut = and {i} %w, %kept
  %sign = and {i} %w, {-(1 << (bits - 1))}
  %inner = select i1 %small, {i} %sign, {i} %cut
  %word = select i1 %whole, {i} %w, {i} %inner
  %y = bitcast {i} %word to {llvm_type}
  %isnan = fcmp uno {llvm_type} %x, %x
  %quiet = fadd {llvm_type} %x, %x
  %z = select i1 %isnan, {llvm_type} %quiet, {llvm_type} %y
  ret {llvm_type} %z
}}
"""


#: x * y is exact in float64. The sum is rounded to odd there: one that is not exact gets an odd last bit. Rounding that to float32
#: gives what one rounding would. Source: Boldo and Melquiond, Emulation of a FMA (2008).
_FMAF = """
define float @fmaf(float %x, float %y, float %z) #0 {
  %a = fpext float %x to double
  %b = fpext float %y to double
  %c = fpext float %z to double
  %p = fmul double %a, %b
  %s = fadd double %p, %c
  %c.used = fsub double %s, %p
  %p.used = fsub double %s, %c.used
  %p.lost = fsub double %p, %p.used
  %c.lost = fsub double %c, %c.used
  %error = fadd double %p.lost, %c.lost
  %inexact = fcmp one double %error, 0.0
  %w = bitcast double %s to i64
  %last = and i64 %w, 1
  %even = icmp eq i64 %last, 0
  %change = and i1 %inexact, %even
  %error.bits = bitcast double %error to i64
  %differ = xor i64 %error.bits, %w
  %inward = icmp slt i64 %differ, 0
  %step = select i1 %inward, i64 -1, i64 1
  %odd = add i64 %w, %step
  %word = select i1 %change, i64 %odd, i64 %w
  %sum = bitcast i64 %word to double
  %r = fptrunc double %sum to float
  ret float %r
}
"""
#: Both mantissas have 53 bits, and their product 106. The sum is kept in 128 bits, of which the lowest one collects what is shifted
#: out. It is rounded once, to nearest even, at the last bit of the result. That is the bit of a subnormal below the least exponent.
_FMA = """
define internal { i64, i64 } @multiply(i64 %x, i64 %y) #0 {
  %x.lo = and i64 %x, 4294967295
  %x.hi = lshr i64 %x, 32
  %y.lo = and i64 %y, 4294967295
  %y.hi = lshr i64 %y, 32
  %ll = mul i64 %x.lo, %y.lo
  %lh = mul i64 %x.lo, %y.hi
  %hl = mul i64 %x.hi, %y.lo
  %hh = mul i64 %x.hi, %y.hi
  %ll.up = lshr i64 %ll, 32
  %lh.lo = and i64 %lh, 4294967295
  %middle.1 = add i64 %ll.up, %lh.lo
  %middle = add i64 %middle.1, %hl
  %lh.up = lshr i64 %lh, 32
  %middle.up = lshr i64 %middle, 32
  %hi.1 = add i64 %hh, %lh.up
  %hi = add i64 %hi.1, %middle.up
  %middle.shl = shl i64 %middle, 32
  %ll.lo = and i64 %ll, 4294967295
  %lo = or i64 %middle.shl, %ll.lo
  %a = insertvalue { i64, i64 } poison, i64 %lo, 0
  %b = insertvalue { i64, i64 } %a, i64 %hi, 1
  ret { i64, i64 } %b
}

define internal i64 @mantissa(i64 %w, ptr %exponent) #0 {
  %up = lshr i64 %w, 52
  %e = and i64 %up, 2047
  %m = and i64 %w, 4503599627370495
  %subnormal = icmp eq i64 %e, 0
  %whole = or i64 %m, 4503599627370496
  %zeros = call i64 @llvm.ctlz.i64(i64 %m, i1 false)
  %shift.1 = sub i64 %zeros, 11
  %iszero = icmp eq i64 %m, 0
  %shift = select i1 %iszero, i64 0, i64 %shift.1
  %raised = shl i64 %m, %shift
  %e.raised = sub i64 1, %shift
  %y = select i1 %subnormal, i64 %raised, i64 %whole
  %e.out = select i1 %subnormal, i64 %e.raised, i64 %e
  store i64 %e.out, ptr %exponent, align 8
  ret i64 %y
}

define internal i128 @shift_down(i128 %x, i64 %n) #0 {
  %far = icmp sgt i64 %n, 127
  %capped = select i1 %far, i64 127, i64 %n
  %y = call i128 @shift_right(i128 %x, i64 %capped)
  %back = call i128 @shift_left(i128 %y, i64 %capped)
  %inexact = icmp ne i128 %back, %x
  %rest = zext i1 %inexact to i128
  %z = or i128 %y, %rest
  ret i128 %z
}

define double @fma(double %x, double %y, double %z) #0 {
entry:
  %ex.at = alloca i64, align 8
  %ey.at = alloca i64, align 8
  %ez.at = alloca i64, align 8
  %product = fmul double %x, %y
  %plain = fadd double %product, %z
  %wx = bitcast double %x to i64
  %wy = bitcast double %y to i64
  %wz = bitcast double %z to i64
  %mx = call i64 @mantissa(i64 %wx, ptr %ex.at)
  %my = call i64 @mantissa(i64 %wy, ptr %ey.at)
  %mz = call i64 @mantissa(i64 %wz, ptr %ez.at)
  %ex = load i64, ptr %ex.at, align 8
  %ey = load i64, ptr %ey.at, align 8
  %ez = load i64, ptr %ez.at, align 8
  %x.special = icmp eq i64 %ex, 2047
  %y.special = icmp eq i64 %ey, 2047
  %x.zero = icmp eq i64 %mx, 0
  %y.zero = icmp eq i64 %my, 0
  %s.1 = or i1 %x.special, %y.special
  %s.2 = or i1 %s.1, %x.zero
  %s.3 = or i1 %s.2, %y.zero
  br i1 %s.3, label %as_two, label %z_special
as_two:
  ret double %plain
z_special:
  %z.special = icmp eq i64 %ez, 2047
  br i1 %z.special, label %as_z, label %finite
as_z:
  %quiet = fadd double %z, %z
  ret double %quiet
finite:
  %sp = xor i64 %wx, %wy
  %both = call { i64, i64 } @multiply(i64 %mx, i64 %my)
  %lo = extractvalue { i64, i64 } %both, 0
  %hi = extractvalue { i64, i64 } %both, 1
  %lo.w = zext i64 %lo to i128
  %hi.w = zext i64 %hi to i128
  %hi.up = shl i128 %hi.w, 64
  %p.106 = or i128 %hi.up, %lo.w
  %p = shl i128 %p.106, 20
  %mz.w = zext i64 %mz to i128
  %c = shl i128 %mz.w, 72
  %ep.1 = add i64 %ex, %ey
  %ep = sub i64 %ep.1, 1023
  %z.zero = icmp eq i64 %mz, 0
  %ez.real = select i1 %z.zero, i64 %ep, i64 %ez
  %ahead = sub i64 %ep, %ez.real
  %p.first = icmp sge i64 %ahead, 0
  %behind = sub i64 0, %ahead
  %p.down = select i1 %p.first, i64 0, i64 %behind
  %c.down = select i1 %p.first, i64 %ahead, i64 0
  %p.at = call i128 @shift_down(i128 %p, i64 %p.down)
  %c.at = call i128 @shift_down(i128 %c, i64 %c.down)
  %e = select i1 %p.first, i64 %ep, i64 %ez.real
  %signs = xor i64 %sp, %wz
  %subtract = icmp slt i64 %signs, 0
  %p.larger = icmp uge i128 %p.at, %c.at
  %p.minus = sub i128 %p.at, %c.at
  %c.minus = sub i128 %c.at, %p.at
  %difference = select i1 %p.larger, i128 %p.minus, i128 %c.minus
  %total = add i128 %p.at, %c.at
  %m = select i1 %subtract, i128 %difference, i128 %total
  %sign.of = select i1 %p.larger, i64 %sp, i64 %wz
  %sign = and i64 %sign.of, -9223372036854775808
  %nothing = icmp eq i128 %m, 0
  br i1 %nothing, label %cancelled, label %round
cancelled:
  ret double 0.0
round:
  %top = lshr i128 %m, 64
  %top.64 = trunc i128 %top to i64
  %low.64 = trunc i128 %m to i64
  %top.lz = call i64 @llvm.ctlz.i64(i64 %top.64, i1 false)
  %low.lz = call i64 @llvm.ctlz.i64(i64 %low.64, i1 false)
  %top.zero = icmp eq i64 %top.64, 0
  %low.more = add i64 %low.lz, 64
  %lz = select i1 %top.zero, i64 %low.more, i64 %top.lz
  %norm = call i128 @shift_left(i128 %m, i64 %lz)
  %e.1 = sub i64 %e, %lz
  %e.2 = add i64 %e.1, 3
  %tiny = icmp slt i64 %e.2, 1
  %deep = sub i64 1, %e.2
  %more = select i1 %tiny, i64 %deep, i64 0
  %norm.2 = call i128 @shift_down(i128 %norm, i64 %more)
  %kept.w = lshr i128 %norm.2, 75
  %kept = trunc i128 %kept.w to i64
  %kept.back = shl i128 %kept.w, 75
  %rest = sub i128 %norm.2, %kept.back
  %half = shl i128 1, 74
  %above = icmp ugt i128 %rest, %half
  %tie = icmp eq i128 %rest, %half
  %last = and i64 %kept, 1
  %odd = icmp eq i64 %last, 1
  %tie.up = and i1 %tie, %odd
  %up = or i1 %above, %tie.up
  %up.64 = zext i1 %up to i64
  %rounded = add i64 %kept, %up.64
  %e.less = sub i64 %e.2, 1
  %e.field = select i1 %tiny, i64 0, i64 %e.less
  %field = shl i64 %e.field, 52
  %magnitude = add i64 %field, %rounded
  %over = icmp sge i64 %e.2, 2047
  %past = icmp uge i64 %magnitude, 9218868437227405312
  %infinite = or i1 %over, %past
  %bounded = select i1 %infinite, i64 9218868437227405312, i64 %magnitude
  %word = or i64 %bounded, %sign
  %result = bitcast i64 %word to double
  ret double %result
}

declare i64 @llvm.ctlz.i64(i64, i1)
declare i64 @llvm.fshl.i64(i64, i64, i64)
declare i64 @llvm.fshr.i64(i64, i64, i64)
"""


def _shift(name: str, one: str, funnel: str) -> str:
    """Return a function that shifts 128 bits by `%n` < 128 in two halves; LLVM calls a library for such a shift."""
    near, far = ("hi", "lo") if name == "left" else ("lo", "hi")  # the half that bits enter, and the one that they leave
    return f"""
define internal i128 @shift_{name}(i128 %x, i64 %n) #0 {{
  %lo = trunc i128 %x to i64
  %up = lshr i128 %x, 64
  %hi = trunc i128 %up to i64
  %{near}.short = call i64 @llvm.{funnel}.i64(i64 %hi, i64 %lo, i64 %n)
  %k = and i64 %n, 63
  %{far}.short = {one} i64 %{far}, %k
  %long = icmp uge i64 %n, 64
  %{near}.out = select i1 %long, i64 %{far}.short, i64 %{near}.short
  %{far}.out = select i1 %long, i64 0, i64 %{far}.short
  %lo.w = zext i64 %lo.out to i128
  %hi.w = zext i64 %hi.out to i128
  %hi.up = shl i128 %hi.w, 64
  %y = or i128 %hi.up, %lo.w
  ret i128 %y
}}
"""


#: Name -> the texts that define it.
_FUNCTIONS: dict[str, tuple[str, ...]] = {
    "__udivdi3": (_DIVIDE, _render_division_function("__udivdi3", 0, False)),
    "__umoddi3": (_DIVIDE, _render_division_function("__umoddi3", 1, False)),
    "__divdi3": (_DIVIDE, _render_division_function("__divdi3", 0, True)),
    "__moddi3": (_DIVIDE, _render_division_function("__moddi3", 1, True)),
    "fmaf": (_FMAF,),
    "fma": (_shift("left", "shl", "fshl"), _shift("right", "lshr", "fshr"), _FMA),
    "truncf": (_render_float_trunc_function("truncf", "float", 32, 23),),
    "trunc": (_render_float_trunc_function("trunc", "double", 64, 52),),
}
#: The functions that an object may call.
SUPPORT_SYMBOLS = frozenset(_FUNCTIONS)


def render_support_functions(names: Iterable[str] = SUPPORT_SYMBOLS) -> str:
    """Return a module with these functions. Raises KeyError for another name."""
    texts = dict.fromkeys(text for name in sorted(names) for text in _FUNCTIONS[name])
    return "".join([*texts, 'attributes #0 = { nounwind "no-builtins" }\n'])
