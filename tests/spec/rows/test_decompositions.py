"""Each decomposition of the document is a well-formed graph of the same type, in other ops."""

import pytest
from all_examples import GOOD

from uops.spec.ir import build as b
from uops.spec.ir import dtypes as dt
from uops.spec.ir.node import UOp, toposort
from uops.spec.ir.ops import Family, Op
from uops.spec.rows.rows import ROWS
from uops.spec.verify.dialects import Dialect
from uops.spec.verify.verifier import verify

DECOMPOSED = [op for op, row in ROWS.items() if row.family is Family.DECOMPOSED and callable(row.decomposition)]


@pytest.mark.parametrize("op", DECOMPOSED, ids=lambda o: o.name)
def test_decomposition(op):
    u = GOOD[op]
    low = ROWS[op].decomposition(u)
    verify(low, Dialect.TENSOR)
    assert (low.dtype, low.shape) == (u.dtype, u.shape)
    assert op not in {n.op for n in toposort(low)}


def _evaluate(root: UOp, values: dict[UOp, int]) -> int:
    """Unsigned arithmetic of the few ops that Threefry needs."""
    mask = {u: (1 << u.dtype.bits) - 1 for u in toposort(root)}
    table = {
        Op.ADD: lambda a, c: a + c,
        Op.XOR: lambda a, c: a ^ c,
        Op.OR: lambda a, c: a | c,
        Op.SHL: lambda a, c: a << c,
        Op.SHR: lambda a, c: a >> c,
        Op.CAST: lambda a: a,
    }
    done = dict(values)
    for u in toposort(root):
        if u not in done:
            done[u] = u.arg.value if u.op is Op.CONST else table[u.op](*(done[s] for s in u.src)) & mask[u] if u.op in table else 0
    return done[root]


@pytest.mark.parametrize(
    ("counter", "key", "expected"),
    [
        ((0, 0), (0, 0), (0x6B200159, 0x99BA4EFE)),
        ((0xFFFFFFFF, 0xFFFFFFFF), (0xFFFFFFFF, 0xFFFFFFFF), (0x1CB996FC, 0xBB002BE7)),
        ((0x243F6A88, 0x85A308D3), (0x13198A2E, 0x03707344), (0xC4923A9C, 0x483DF7A0)),
    ],
)
def test_threefry_agrees_with_the_published_vectors(counter, key, expected):
    """R22: Random123's known answers for threefry2x32, 20 rounds."""
    a, k = b.param(0, (), dt.uint64), b.param(1, (), dt.uint64)
    low = ROWS[Op.THREEFRY].decomposition(b.threefry(a, k))
    words = {u: lo | hi << 32 for u, (lo, hi) in ((a, counter), (k, key))}
    assert _evaluate(low, words) == expected[0] | expected[1] << 32
