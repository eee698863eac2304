"""Programs whose addresses are index expressions, in the subset common to both Tensor front ends.

A program is (family, shapes of its operands, Python source of an expression of `t`, the list of operands). Sizes are drawn by
seed.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterable, Iterator

Program = tuple[str, list[list[int]], str]
FAMILIES = (
    "tiled matmul", "convolution", "pooling", "reshape chain", "transpose", "strided slice", "concatenation", "view", "repeat",
    "pad",
)  # fmt: skip


#: Families whose addresses are taken together with their gates.
MASKED_FAMILIES = ("tiles with overhang", "gated reshape chain")


def generate_programs(seed: int, each: int, families: Iterable[str] = FAMILIES) -> Iterator[Program]:
    """Yield `each` programs of every family."""
    for family in families:
        rng = random.Random(f"{seed} {family}")
        for _ in range(each):
            yield (family, *MAKE[family](rng))


def _draw_factors(rng: random.Random, n: int, parts: int) -> list[int]:
    """Return `parts` numbers whose product is n."""
    factors = [1] * parts
    for p in _prime_factors(n):
        factors[rng.randrange(parts)] *= p
    return factors


def _prime_factors(n: int) -> Iterator[int]:
    """Yield the prime factors of n, with multiplicity."""
    p = 2
    while n > 1:
        while n % p == 0:
            yield p
            n //= p
        p += 1


def _draw_tiled_matmul(rng: random.Random) -> tuple[list[list[int]], str]:
    """Draw a matrix product of tiled operands."""
    tiles, sizes = [rng.choice((2, 4, 8, 16)) for _ in "mkn"], [rng.choice((2, 3, 4, 8)) for _ in "mkn"]
    (a, c, b), (p, r, q) = tiles, sizes
    m, k, n = a * p, c * r, b * q
    left = f"t[0].reshape({p}, {a}, {r}, {c}).permute(0, 2, 1, 3)"
    right = f"t[1].reshape({r}, {c}, {q}, {b}).permute(0, 2, 1, 3)"
    if rng.random() < 0.5:  # one tile after the other, then back to a matrix
        left = f"{left}.reshape({p * r}, {a * c}).reshape({p}, {r}, {a}, {c}).permute(0, 2, 1, 3).reshape({m}, {k})"
        return [[m, k], [k, n]], f"{left} @ {right}.permute(0, 2, 1, 3).reshape({k}, {n})"
    left, right = f"{left}.reshape({p}, {r}, 1, {a}, {c}, 1)", f"{right}.reshape(1, {r}, {q}, 1, {c}, {b})"
    return [[m, k], [k, n]], f"({left} * {right}).sum((1, 4)).permute(0, 2, 1, 3).reshape({m}, {n})"


def _draw_convolution(rng: random.Random) -> tuple[list[list[int]], str]:
    """Draw a convolution."""
    groups, k = rng.choice((1, 1, 2)), rng.choice((1, 2, 3, 5))
    cin, cout = groups * rng.choice((1, 3, 4)), groups * rng.choice((2, 4, 8))
    stride, dilation, padding = rng.choice((1, 1, 2, 3)), rng.choice((1, 1, 2)), rng.choice((0, 1, 2))
    low = dilation * (k - 1) + 1
    h, w = rng.randrange(low, low + 14), rng.randrange(low, low + 14)
    shapes = [[rng.choice((1, 2, 4)), cin, h, w], [cout, cin // groups, k, k]]
    return shapes, f"t[0].conv2d(t[1], groups={groups}, stride={stride}, dilation={dilation}, padding={padding})"


def _draw_pooling(rng: random.Random) -> tuple[list[list[int]], str]:
    """Draw a pooling."""
    k = rng.choice((2, 3, 4))
    stride, padding = rng.choice((1, 2, 3, k)), rng.choice((0, 0, 1))
    name = rng.choice(("max_pool2d", "avg_pool2d"))
    shape = [rng.choice((1, 2)), rng.choice((1, 3)), rng.randrange(k, k + 16), rng.randrange(k, k + 16)]
    return [shape], f"t[0].{name}(kernel_size=({k}, {k}), stride={stride}, padding={padding})"


def _size(rng: random.Random) -> int:
    """Draw a size with small prime factors."""
    return math.prod(rng.choice((2, 2, 3, 4, 5, 7)) for _ in range(rng.randrange(3, 6)))


def _draw_movement_chain(rng: random.Random, shape: list[int], kinds: str, count: int) -> str:
    """Draw a chain of movement ops; kinds: r(eshape), p(ermute), s(hrink), f(lip), d (pad)."""
    text = ""
    for _ in range(count):
        kind = rng.choice(kinds)
        if kind == "r":
            shape = _draw_factors(rng, math.prod(shape), rng.randrange(1, 5))
            text += f".reshape({tuple(shape)})"
        elif kind == "p":
            order = rng.sample(range(len(shape)), len(shape))
            shape = [shape[k] for k in order]
            text += f".permute({tuple(order)})"
        elif kind == "s":
            bounds = [sorted(rng.sample(range(n + 1), 2)) for n in shape]
            shape = [hi - lo for lo, hi in bounds]
            text += f".shrink({tuple(map(tuple, bounds))})"
        elif kind == "f":
            text += f".flip({rng.randrange(len(shape))})"
        else:
            amounts = [(rng.randrange(3), rng.randrange(3)) for _ in shape]
            shape = [n + a + b for n, (a, b) in zip(shape, amounts)]
            text += f".pad({tuple(amounts)})"
    return text


def _make_chain_family(kinds: str, few: int, many: int):  # type: ignore[no-untyped-def]
    """Return a family of chains of few to many movement ops."""

    def make(rng: random.Random) -> tuple[list[list[int]], str]:
        shape = _draw_factors(rng, _size(rng), rng.randrange(1, 5))
        return [shape], "t[0]" + _draw_movement_chain(rng, shape, kinds, rng.randrange(few, many))

    return make


def _draw_slices(rng: random.Random) -> tuple[list[list[int]], str]:
    """Draw slices with steps of either sign."""
    shape = [rng.randrange(4, 20) for _ in range(rng.randrange(1, 4))]
    keys = []
    for n in shape:
        lo, step = rng.randrange(0, n // 2), rng.choice((1, 2, 3, -1, -2))
        keys.append(f"{lo}:{rng.randrange(lo + 1, n + 1)}:{step}" if step > 0 else f"::{step}")
    sliced = f"t[0][{', '.join(keys)}]"
    return [shape], sliced if rng.random() < 0.5 else f"{sliced}.permute({tuple(reversed(range(len(shape))))}).flatten()"


def _draw_concatenation(rng: random.Random) -> tuple[list[list[int]], str]:
    """Draw a stack or a concatenation along one axis."""
    shape, count = [rng.randrange(2, 9) for _ in range(rng.randrange(1, 4))], rng.randrange(2, 4)
    dim = rng.randrange(len(shape))
    if rng.random() < 0.3:
        return [shape] * count, f"t[0].stack({', '.join(f't[{k}]' for k in range(1, count))}, dim={dim}).flatten()"
    shapes = [[rng.randrange(1, 9) if k == dim else n for k, n in enumerate(shape)] for _ in range(count)]
    rest = f"t[0].cat({', '.join(f't[{k}]' for k in range(1, count))}, dim={dim})"
    return shapes, rest if rng.random() < 0.5 else f"{rest}.flatten()"


def _draw_repeat(rng: random.Random) -> tuple[list[list[int]], str]:
    """Draw a repetition or a rotation."""
    shape = [rng.randrange(2, 9) for _ in range(rng.randrange(1, 4))]
    dim, by = rng.randrange(len(shape)), rng.randrange(2, 5)
    choices = [
        f"t[0].repeat({', '.join(str(by if k == dim else rng.randrange(1, 3)) for k in range(len(shape)))})",
        f"t[0].repeat_interleave({by}, {dim})",
        f"t[0].roll({rng.randrange(1, shape[dim])}, {dim})",
    ]
    return [shape], rng.choice(choices) + rng.choice(("", ".flatten()"))


def _draw_tiles_with_overhang(rng: random.Random) -> tuple[list[list[int]], str]:
    """Draw loops over tiles and their elements, of axes that the tiles do not divide, on a view of memory."""
    shape = _draw_factors(rng, _size(rng), rng.randrange(1, 4))
    text = "t[0]" + _draw_movement_chain(rng, shape, "rp", rng.randrange(1, 4))
    axes = _draw_factors(rng, math.prod(shape), rng.choice((1, 1, 2)))
    tiles = [rng.choice((3, 4, 8, 16, 32)) for _ in axes]
    counts = [-(-n // tile) for n, tile in zip(axes, tiles)]
    overhang = tuple((0, count * tile - n) for n, tile, count in zip(axes, tiles, counts))
    loops = [n for pair in zip(counts, tiles) for n in pair]
    outer_first = (*range(0, len(loops), 2), *range(1, len(loops), 2))
    text += f".reshape({tuple(axes)}).pad({overhang}).reshape({tuple(loops)}).permute({outer_first})"
    return [shape], text + rng.choice(("", ".sum(-1)"))


MAKE = {
    "tiles with overhang": _draw_tiles_with_overhang,
    "gated reshape chain": _make_chain_family("rrdrp", 3, 7),
    "tiled matmul": _draw_tiled_matmul,
    "convolution": _draw_convolution,
    "pooling": _draw_pooling,
    "reshape chain": _make_chain_family("rrrp", 2, 5),
    "transpose": _make_chain_family("rp", 3, 6),
    "strided slice": _draw_slices,
    "concatenation": _draw_concatenation,
    "view": _make_chain_family("rpsf", 2, 6),
    "repeat": _draw_repeat,
    "pad": _make_chain_family("rpsfd", 2, 6),
}
