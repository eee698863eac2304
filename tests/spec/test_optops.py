"""The legality oracle: every reason it can give, the table of splits, and the axes after an OptOp."""

import itertools
import re

import pytest

from uops.spec.ir import build as b
from uops.spec.ir import dtypes as dt
from uops.spec.ir.args import WmmaArg
from uops.spec.ir.axes import AXIS_TABLE, WORKGROUP, AxisType, Direction
from uops.spec.optops import (
    OPTOPS,
    TC,
    TILED,
    Axis,
    Nolocals,
    Padto,
    Split,
    Swap,
    apply_legal_optop_to_axes,
    illegality_reason,
    sort_axes,
)

T = AxisType
N = b.variable("n", 1, 8)
TILE = WmmaArg("tile", (16, 8, 4), dt.float16, dt.float32, "GPU", 32)
GEMM = (Axis(0, T.GLOBAL, 32), Axis(1, T.GLOBAL, 64), Axis(2, T.REDUCE, 8))
TWO = (*GEMM, Axis(3, T.REDUCE, 4))
ODD = (Axis(0, T.GLOBAL, 33), Axis(1, T.GLOBAL, 64), Axis(2, T.REDUCE, 8))


def _tc(*args: int, axes=GEMM, **options):
    return TC(*args), axes, {"descriptors": (TILE,)} | options


#: reason (a pattern), OptOp, axes, options
REJECTED = [
    (r"there is no axis 3 \(R95\)", Split(3, 2, T.LOCAL), GEMM, {}),
    (r"there is no axis -1 \(R95\)", Split(-1, 2, T.LOCAL), GEMM, {}),
    (r"factor 0 is less than 1 \(R90\)", Split(0, 0, T.LOCAL), GEMM, {}),
    (r"factor 5 does not divide .*\(R90\)", Split(0, 5, T.LOCAL), GEMM, {}),
    (r"factor 2 does not divide .*\(R90\)", Split(0, 2, T.LOCAL), (Axis(0, T.LOOP, N),), {}),
    (r"no Split makes WARP \(R90\)", Split(0, 2, T.WARP), GEMM, {}),
    (r"no Split makes GLOBAL \(R90\)", Split(0, 2, T.GLOBAL), (Axis(0, T.LOOP, 4),), {}),
    (r"UNROLL is not split from GLOBAL \(R90\)", Split(0, 2, T.UNROLL), GEMM, {}),
    (r"LOCAL is the inner half \(R90\)", Split(0, 2, T.LOCAL, True), GEMM, {}),
    (r"THREAD is the outer half: it needs top \(R90\)", Split(0, 2, T.THREAD), GEMM, {}),
    (r"Nolocals forbids LOCAL \(R96\)", Split(0, 2, T.LOCAL), GEMM, {"applied": (Nolocals(),)}),
    (r"there is no axis 3 \(R95\)", Padto(3, 2), GEMM, {}),
    (r"multiple 0 is less than 1 \(R98\)", Padto(0, 0), GEMM, {}),
    (r"there is no axis 3 \(R95\)", Swap(0, 3), GEMM, {}),
    (r"the two axes are one \(R98\)", Swap(1, 1), GEMM, {}),
    (r"GLOBAL and REDUCE are of different types \(R96\)", Swap(0, 2), GEMM, {}),
    *((rf"there is a {t.name} axis already \(R96\)", Nolocals(), (*GEMM, Axis(4, t, 2)), {}) for t in sorted(WORKGROUP, key=str)),
    (r"TC comes first \(R93\)", *_tc(0, applied=(Padto(0, 2),))),
    (r"opt 3, mode 1 are not defined \(R97\)", *_tc(0, 0, 3)),
    (r"opt 0, mode 0 are not defined \(R97\)", *_tc(0, 0, 0, 0)),
    (r"there is no reduce axis 1 \(R97\)", *_tc(1)),
    (r"the target has no tensor core 1 \(R97\)", *_tc(0, 1)),
    (r"the target has no tensor core \(R97\)", *_tc(0, descriptors=())),
    (r"the kernel reduces no Mul\(Cast\(a\), Cast\(b\)\) \(R93\)", *_tc(0, is_matmul=False)),
    (r"opt 0 takes one reduce axis, not 2 \(R97\)", *_tc(0, axes=TWO)),
    (r"needs two output axes, got 1 \(R93\)", *_tc(0, axes=GEMM[1:])),
    (r"K = 4 does not divide .*\(R97\)", *_tc(0, axes=(*GEMM[:2], Axis(2, T.REDUCE, 6)))),
    (r"N = 16 and M = 8 divide no two .*\(R97\)", *_tc(0, axes=ODD)),
]
ACCEPTED = [
    (Split(0, 1, T.LOCAL), GEMM, {}),
    (Split(0, 2, T.THREAD, True), GEMM, {}),
    (Split(0, 4, T.UPCAST), (Axis(0, T.LOOP, b.mul(N, 8)),), {}),
    (Split(0, 2, T.UPCAST), GEMM, {"applied": (Nolocals(),)}),
    (Padto(2, 8), GEMM, {}),
    (Padto(0, 3), (Axis(0, T.LOOP, N),), {}),
    (Swap(0, 1), GEMM, {}),
    (Nolocals(), GEMM, {"applied": (Nolocals(),)}),
    _tc(0),
    _tc(1, 0, 1, axes=TWO),
    _tc(0, 0, 2, 2, axes=ODD),
]


@pytest.mark.parametrize(("reason", "opt", "axes", "options"), REJECTED)
def test_rejected_with_its_reason(reason, opt, axes, options):
    assert re.fullmatch(reason, illegality_reason(opt, axes, **options) or "legal")


@pytest.mark.parametrize(("opt", "axes", "options"), ACCEPTED)
def test_accepted(opt, axes, options):
    assert illegality_reason(opt, axes, **options) is None


def test_every_reason_of_the_oracle_is_tested():
    """Each f-string of the oracle that ends in a ruling is met by a rejection above."""
    import inspect

    from uops.spec import optops

    found = re.findall(r'f?"([^"]*\(R\d+\))"', inspect.getsource(optops))
    patterns = [".*".join(map(re.escape, re.split(r"\{.*?\}", text))) for text in found]
    reasons = [illegality_reason(opt, axes, **options) or "" for _, opt, axes, options in REJECTED]
    assert len(patterns) > 15
    assert [p for p in patterns if not any(re.fullmatch(p, r) for r in reasons)] == []


@pytest.mark.parametrize(("source", "target", "top"), list(itertools.product(T, T, (False, True))))
def test_splits_follow_the_axis_table(source, target, top):
    """R90, R91: "Split from" and "Direction" decide, but for tiling into the own type."""
    row = AXIS_TABLE[target]
    by_table = source in row.split_from and row.direction in (Direction.EITHER, Direction.OUTER if top else Direction.INNER)
    by_tiling = source is target and source in TILED
    assert (illegality_reason(Split(0, 2, target, top), [Axis(0, source, 4)]) is None) == (by_table or by_tiling)


def test_axes_are_numbered_by_priority_then_id():
    """R95, R109."""
    axes = [Axis(3, T.REDUCE, 2), Axis(2, T.THREAD, 2), Axis(1, T.GLOBAL, 2), Axis(0, T.UPCAST, 2), Axis(4, T.LOOP, 2)]
    assert [a.id for a in sort_axes(axes)] == [4, 1, 2, 0, 3]


def test_split_gives_the_new_axis_the_next_free_id():
    assert apply_legal_optop_to_axes(Split(0, 4, T.LOCAL), GEMM) == [Axis(0, T.GLOBAL, 8), *GEMM[1:2], Axis(3, T.LOCAL, 4), GEMM[2]]


def test_padto_rounds_up_and_swap_exchanges_places():
    assert apply_legal_optop_to_axes(Padto(2, 5), GEMM)[2] == Axis(2, T.REDUCE, 10)
    assert apply_legal_optop_to_axes(Padto(2, 4), GEMM)[2] == GEMM[2]
    assert apply_legal_optop_to_axes(Swap(0, 1), GEMM) == [Axis(0, T.GLOBAL, 64), Axis(1, T.GLOBAL, 32), GEMM[2]]
    assert apply_legal_optop_to_axes(Nolocals(), GEMM) == list(GEMM)


@pytest.mark.parametrize("opt", [Split(0, 2, T.LOCAL), Padto(0, 2), TC(0)])
def test_apply_refuses_what_it_cannot_compute(opt):
    with pytest.raises(TypeError):
        apply_legal_optop_to_axes(opt, [Axis(0, T.LOOP, N)])


def test_table_lists_the_five():
    assert [o for o in OPTOPS if o.row.printed] == [Split, Padto, Swap, Nolocals, TC]
