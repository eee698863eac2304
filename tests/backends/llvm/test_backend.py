"""The llvm backend as a whole: tensor graphs through the compiler, its options, guard pages in a worker."""

import os
import re
import subprocess
import sys
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

import uops
from uops.backends import registry
from uops.backends.contract import CompilerBackend
from uops.backends.llvm.target import LlvmTarget
from uops.backends.worker.client import BackendWorker, WorkerCase
from uops.backends.worker.guard import GuardedProgram, GuardSide
from uops.compiler import Target
from uops.spec.errors import Unsound
from uops.spec.ir import build as B
from uops.spec.ir import dtypes as dt
from uops.spec.ir.node import UOp
from uops.spec.ir.ops import Op

OPTIONS = [{"tier": "full"}, {"tier": "fast"}, {"guard": True}, {"guard": "start", "tier": "fast"}]


@pytest.fixture(params=OPTIONS, ids=str)
def backend(request: pytest.FixtureRequest):
    found = registry.create_backend("llvm", **request.param)
    yield found
    found.close()


def program(d: dt.DType) -> UOp:
    """Row sums of p0 + p1^T, and the assignment of their negation to a buffer."""
    total = B.reduce(B.add(B.param(0, (3, 4), d), B.permute(B.param(1, (4, 3), d), (1, 0))), Op.ADD, (1,))
    saved = B.assign(B.buffer(3, d, unique=501), B.neg(B.reshape(total, (3,))))
    return UOp(Op.TUPLE, (total, saved))


@pytest.mark.parametrize(
    "storage", [np.float32, np.float64, np.int8, np.uint64, np.float16, ml_dtypes.bfloat16, ml_dtypes.float8_e5m2]
)
def test_a_tensor_graph_runs_in_every_kind_of_dtype(backend, storage) -> None:
    x, y = np.arange(12).reshape(3, 4).astype(storage), (np.arange(12).reshape(4, 3) % 2).astype(storage)
    got = backend.run(
        program(dt.DTYPES[{"float8_e5m2": "fp8e5m2"}.get(np.dtype(storage).name, np.dtype(storage).name)]), {"p0": x, "p1": y}
    )
    exact = (x.astype(np.float64) + y.T.astype(np.float64)).sum(1)  # small integers, exact but in fp8
    negated = -exact if np.dtype(storage).kind != "u" else (2.0**64 - exact)
    if storage is ml_dtypes.float8_e5m2:
        exact = exact.astype(storage).astype(np.float64)
        negated = -exact
    assert got.values[0].astype(np.float64).ravel().tolist() == exact.tolist()
    assert got.values[1].astype(np.float64).tolist() == negated.tolist()
    assert got.buffers["b501"].tobytes() == got.values[1].tobytes()


def test_the_target_is_what_the_compiler_asks_for() -> None:
    target: Target = LlvmTarget()
    assert target.key != LlvmTarget(tier=LlvmTarget().tier.FAST).key
    assert isinstance(registry.create_backend("llvm"), CompilerBackend)


def test_the_same_graph_is_compiled_once(backend, monkeypatch: pytest.MonkeyPatch) -> None:
    graph, x = B.add(B.param(0, (5,), dt.float32), 1.5), np.zeros(5, np.float32)
    backend.run(graph, {"p0": x})
    count = []
    monkeypatch.setattr(LlvmTarget, "compile", lambda *_: count.append(1) or b"")
    if not backend.guard:
        assert backend.run(graph, {"p0": x}).values[0].tolist() == [1.5] * 5
    assert count == []


@pytest.mark.parametrize(
    ("option", "says"), [({"tier": "fastest"}, "known: fast, full"), ({"guard": "middle"}, "'end' or 'start'")]
)
def test_an_unknown_option_is_refused(option: dict[str, str], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        registry.create_backend("llvm", **option)


def careless(by: int) -> LlvmTarget:
    """A target whose kernels reach `by` elements beside where they should in their first buffer."""

    class Moved(LlvmTarget):
        def render(self, linear: UOp) -> str:
            text = super().render(linear)
            assert "  %p0 = load ptr" in text
            moved = f"  %p0 = getelementptr float, ptr %p0.own, i64 {by}"
            return re.sub("  %p0 = (load ptr.*)", rf"  %p0.own = \1\n{moved}", text)

    return Moved()


@pytest.mark.parametrize(("side", "by"), [(GuardSide.END, -1), (GuardSide.START, 1)])
def test_a_kernel_that_writes_beside_its_buffer_is_found(side: GuardSide, by: int) -> None:
    graph, x = B.add(B.param(0, (5,), dt.float32), 1.5), np.zeros(5, np.float32)
    with pytest.raises(Unsound, match="outside a buffer of 20 bytes"):
        GuardedProgram(graph, careless(by), side)({"p0": x})
    assert GuardedProgram(graph, careless(0), side)({"p0": x}).values[0].tolist() == [1.5] * 5


CRASH = """
import sys
from uops.backends.contract import Capabilities, CompilerBackend
from test_backend import careless

class Overrun(CompilerBackend):
    name = "overrun"
    def __init__(self, by, guard):
        super().__init__(careless(by), guard=guard)
    def version(self):
        return "overrun"
    def capabilities(self):
        return Capabilities()
"""


@pytest.mark.parametrize(("guard", "by"), [("end", 1), ("start", -1)])
def test_a_kernel_that_leaves_its_buffer_ends_the_worker_only(tmp_path, guard: str, by: int) -> None:
    (tmp_path / "overrun_backend.py").write_text(CRASH)
    path = [str(tmp_path), str(Path(__file__).parent)]
    graph, x = B.add(B.param(0, (5,), dt.float32), 1.5), np.zeros(5, np.float32)
    with BackendWorker("overrun_backend:Overrun", {"by": by, "guard": guard}, path=path) as w:
        assert (w.run(WorkerCase(graph, {"p0": x})).signal) == "SIGSEGV"
    with BackendWorker("overrun_backend:Overrun", {"by": 0, "guard": guard}, path=path) as w:
        assert w.run(WorkerCase(graph, {"p0": x})).status == "ok"


def test_the_contract_and_the_registry_load_no_compiler_and_no_llvm() -> None:
    script = (
        "import sys, uops.backends.registry, uops.backends.worker.client\n"
        "print([m for m in sys.modules if 'llvmlite' in m or 'uops.compiler' in m])"
    )
    environment = {**os.environ, "PYTHONPATH": str(Path(uops.__file__).parents[1])}
    done = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
