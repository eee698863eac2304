"""Operands of elementwise functions by edge class, and the case that holds all classes of one function and dtype as segments.

`key` names the function; the operands depend on it, on the dtypes and on the tier alone.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from uops.backends.conformance.model import ConformanceCase, ConformanceTier, Segment
from uops.backends.conformance.pools import edge_classes, make_seeded_generator, ordinary_bits, random_bits, to_array
from uops.backends.testing.values import special_bits_for_operand_pairs
from uops.spec.ir import build as b
from uops.spec.ir.dtypes import DType
from uops.spec.ir.node import UOp

Array = npt.NDArray[Any]
#: Number of random operand tuples per case.
RANDOM_TUPLES = {ConformanceTier.SMOKE: 64, ConformanceTier.FULL: 2048}
#: Largest number of operand tuples of an edge class.
_PER_CLASS = {ConformanceTier.SMOKE: 24, ConformanceTier.FULL: 160}


def make_params(dtypes: tuple[DType, ...], shapes: list[tuple[int, ...]]) -> tuple[UOp, ...]:
    """Make a Param of each dtype and shape."""
    return tuple(b.param(k, s, d) for k, (d, s) in enumerate(zip(dtypes, shapes, strict=True)))


def make_segmented_case(
    row: str, d: DType, dtypes: tuple[DType, ...], bits_by_edge: dict[str, Array], name: str, build: Callable[..., UOp]
) -> ConformanceCase:
    """Create a case from `bits_by_edge`: edge class -> bit patterns of shape (operands, n). `build` makes its graph of Params."""
    segments, start = [], 0
    for edge, block in bits_by_edge.items():
        segments.append(Segment(edge, 0, start, start + block.shape[1]))
        start += block.shape[1]
    whole = np.concatenate(list(bits_by_edge.values()), axis=1)
    params = make_params(dtypes, [(start,)] * len(dtypes))
    inputs = {f"p{k}": to_array(whole[k], kind) for k, kind in enumerate(dtypes)}
    return ConformanceCase(row, d, name, build(*params), inputs, tuple(segments))


def generate_bits_by_edge_class(key: str, dtypes: tuple[DType, ...], tier: ConformanceTier) -> Iterator[tuple[str, Array]]:
    """Yield a block per edge class: the witnesses, then tuples with at least one operand of the class."""
    witnesses = make_distinct_ordinary_operand_tuples(dtypes)
    yield "ordinary", np.concatenate([witnesses, _draw_operand_tuples(dtypes, {}, 32, key, "ordinary")], axis=1)
    names = list(dict.fromkeys(c for k in dtypes for c in edge_classes(k)))
    for edge in names:
        chosen = _combine_or_sample_tuples_with_edge_operand(dtypes, edge, _PER_CLASS[tier], key)
        yield edge, np.concatenate([witnesses, chosen, _combine_special_values_with_edge_operand(dtypes, edge)], axis=1)
    n = RANDOM_TUPLES[tier]
    random = np.stack([random_bits(k, n, key, i) for i, k in enumerate(dtypes)])
    yield "random", np.concatenate([witnesses, random], axis=1)


def make_distinct_ordinary_operand_tuples(dtypes: tuple[DType, ...]) -> Array:
    """Create ordinary operand tuples. All but the last are distinct unless `dtypes` has bools; its operands are equal."""
    n = 8
    rows = [
        [ordinary_bits(k)[(j + 3 * i * (1 + j // 4)) % 8] for j in range(n - 1)] + [ordinary_bits(k)[3]]
        for i, k in enumerate(dtypes)
    ]
    return np.array(rows, np.uint64)


def _draw_operand_tuples(dtypes: tuple[DType, ...], pools: dict[int, tuple[int, ...]], n: int, key: str, edge: str) -> Array:
    rng = make_seeded_generator("mix", key, edge, *dtypes)
    return np.stack([_draw_from_pool(rng, pools.get(i, ordinary_bits(k)), n) for i, k in enumerate(dtypes)])


def _draw_from_pool(rng: np.random.Generator, pool: tuple[int, ...], n: int) -> Array:
    return np.array(pool, np.uint64)[rng.integers(0, len(pool), n)]


def _combine_or_sample_tuples_with_edge_operand(dtypes: tuple[DType, ...], edge: str, max_tuples: int, key: str) -> Array:
    """Combine operands of class `edge` with the class itself, ordinary values and the whole pool."""
    blocks = []
    for i, k in enumerate(dtypes):
        pool = edge_classes(k).get(edge)
        if pool is None:
            continue
        other_pools = {
            j: (*ordinary_bits(o), *(v for p in edge_classes(o).values() for v in p)) for j, o in enumerate(dtypes) if j != i
        }
        pools = [pool] + [other_pools[j] for j in other_pools]
        if len(dtypes) == 1:
            blocks.append(np.array([pool[:max_tuples]], np.uint64))
        elif np.prod([float(len(s)) for s in pools]) <= max_tuples:
            grid = np.array(list(itertools.product(*pools)), np.uint64).T
            order = [i, *other_pools]
            blocks.append(grid[np.argsort(order)])
        else:
            blocks.append(_draw_operand_tuples(dtypes, {i: pool, **other_pools}, max_tuples, key, f"{edge}{i}"))
    return np.concatenate(blocks, axis=1)


def _combine_special_values_with_edge_operand(dtypes: tuple[DType, ...], edge: str) -> Array:
    """Combine every two special values of which one is of class `edge`, such as the least integer with -1."""
    if len(dtypes) != 2:
        return np.empty((len(dtypes), 0), np.uint64)
    a, b = (frozenset(edge_classes(k).get(edge, ())) for k in dtypes)
    pairs = itertools.product(*map(special_bits_for_operand_pairs, dtypes))
    return np.array([(x, y) for x, y in pairs if x in a or y in b], np.uint64).reshape(-1, 2).T
