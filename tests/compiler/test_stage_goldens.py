"""One program through all stages for one fixed machine, as text: what each stage made of a small gemm with bias and relu.

tests/golden/stages has one file per stage. Its head says which ops the stage took away and which it brought; then the whole graph
follows. After a change on purpose: look at the difference, then run with --update-golden.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import numpy as np
import pytest

from uops.backends.cache import ObjectCache
from uops.backends.llvm.binding import LlvmTier
from uops.backends.llvm.target import LlvmTarget
from uops.compiler import STAGES, Config
from uops.compiler.passes.callify.callify import outputs
from uops.compiler.pipeline import stages
from uops.compiler.target import MachineModel
from uops.interp import run
from uops.spec.ir import build as b
from uops.spec.ir import dtypes as dt
from uops.spec.ir.node import UOp, toposort
from uops.spec.ir.ops import Op
from uops.spec.ir.text import show

#: Eight lanes of float32, sixteen registers, one core: no more of the host than its compiler is asked.
MACHINE = MachineModel(vector_bytes=32, registers=16, caches=(32 << 10, 1 << 20), cores=1, fma=True)
SHAPE = (8, 6, 16)


class Fixed(LlvmTarget):
    """The llvm target for a machine that is the same everywhere."""

    def __init__(self) -> None:
        super().__init__(LlvmTier.FAST, ObjectCache(None))
        self.machine = MACHINE


def program() -> UOp:
    """relu(x y + bias)."""
    m, k, n = SHAPE
    x, y, bias = b.param(0, (m, k), dt.float32), b.param(1, (k, n), dt.float32), b.param(2, (n,), dt.float32)
    product = b.reduce(b.mul(b.reshape(x, (m, k, 1)), b.reshape(y, (1, k, n))), Op.ADD, (1,))
    return b.maximum(b.add(b.reshape(product, (m, n)), bias), b.const(0.0))


@pytest.fixture(scope="module")
def lowered() -> dict[str, UOp]:
    return stages(program(), Fixed(), Config(verify=True, reuse=False))


def ops(root: UOp) -> Counter[str]:
    """Nodes by op, those of bodies too."""
    found: Counter[str] = Counter()
    bodies = dict.fromkeys(c.src[0] for c in toposort(root) if c.op is Op.CALL)
    for scope in (root, *bodies):
        found.update(u.op.name.lower() for u in toposort(scope, gate=lambda u: u.op is not Op.CALL))
    return found


def head(stage: str, before: UOp | None, after: UOp) -> str:
    """What a stage changed, in ops."""
    new, old = ops(after), ops(before) if before is not None else Counter[str]()
    words = [
        f"{sign}{n} {name}"
        for name in sorted({*new, *old})
        for n, sign in ((abs(new[name] - old[name]), "+" if new[name] > old[name] else "-"),)
        if n
    ]
    return f"; {stage}: {', '.join(words) or 'no op more or less'}\n"


def text(stage: str, root: UOp) -> str:
    """The graph; of a rendered program the source of its kernels, as an object is no text."""
    if stage != "render":
        return show(root, types=True)
    return "\n".join(str(c.src[0].src[1].arg.code) for c in root.src)


@pytest.mark.parametrize("stage", ["tensor", *STAGES])
def test_what_a_stage_changed_is_what_it_is_known_to_change(
    stage: str, lowered: dict[str, UOp], golden: Callable[[str, str], None]
) -> None:  # fmt: skip
    names = list(lowered)
    before = lowered[names[names.index(stage) - 1]] if stage != names[0] else None
    golden(f"stages/{names.index(stage)}-{stage}.txt", head(stage, before, lowered[stage]) + text(stage, lowered[stage]))


def test_the_program_of_the_goldens_is_right_at_every_stage(lowered: dict[str, UOp]) -> None:
    m, k, n = SHAPE
    given = {
        "p0": (np.arange(m * k, dtype=np.float32).reshape(m, k) % 7 - 3) / 4,
        "p1": (np.arange(k * n, dtype=np.float32).reshape(k, n) % 5 - 2) / 2,
        "p2": np.arange(n, dtype=np.float32) - 8,
    }
    (out,) = outputs(program())
    expected = np.maximum(given["p0"] @ given["p1"] + given["p2"], 0)
    for stage, root in lowered.items():
        if stage == "tensor":
            np.testing.assert_array_equal(run(root, given).values[0], expected)
        elif stage not in ("callify", "render"):
            got = run(root, given).buffers[f"b{out.buffer.arg.unique}"].reshape(out.shape)
            np.testing.assert_array_equal(got, expected, err_msg=stage)
