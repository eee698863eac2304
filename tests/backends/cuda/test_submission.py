"""What `cuda` asks of a driver: copies, waits, and the launches of a program as one graph. No GPU is needed."""

from __future__ import annotations

import gc
import threading
from collections import Counter
from collections.abc import Iterator

import numpy as np
import pytest
from simulated_driver import SimulatedDriver

from uops.backends.cache import ObjectCache
from uops.backends.conformance.cases import generate_cases
from uops.backends.conformance.judge import Expectation, judge
from uops.backends.conformance.model import ConformanceLevel, ConformanceTier
from uops.backends.contract import NATIVE_SURFACE, Capabilities, CompilerBackend
from uops.backends.cuda import driver, nvrtc, shim
from uops.backends.cuda.target import CudaTarget
from uops.compiler import Config, compile
from uops.compiler.runtime.program import Compiled
from uops.interp import run
from uops.spec.errors import Unsupported
from uops.spec.ir import build as B
from uops.spec.ir import dtypes as dt
from uops.spec.ir.node import UOp
from uops.spec.ir.ops import Op

pytestmark = pytest.mark.skipif(shim.unavailable_reason() is not None, reason=str(shim.unavailable_reason()))
F32 = dt.float32
UNSHARED = Config(reuse=False)


@pytest.fixture
def simulated(monkeypatch: pytest.MonkeyPatch) -> Iterator[SimulatedDriver]:
    """A driver in place of the machine's. nvrtc gives the text as it is."""
    library = SimulatedDriver()
    monkeypatch.setattr(driver, "_load_driver", lambda: library)
    monkeypatch.setattr(driver, "limit_data_instead_of_addresses", lambda: None)
    monkeypatch.setattr(driver, "_current", threading.local())
    monkeypatch.setattr(nvrtc, "compile_to_cubin", lambda source, architecture: source.encode())
    monkeypatch.setattr(nvrtc, "unavailable_reason", lambda: None)
    monkeypatch.setattr(nvrtc, "version", lambda: "no nvrtc")
    driver.open_device.cache_clear()
    yield library
    gc.collect()  # what is loaded is unloaded by this driver
    driver.open_device.cache_clear()


@pytest.fixture
def target(simulated: SimulatedDriver) -> CudaTarget:
    return CudaTarget(ObjectCache(None))


def softmax(rows: int, columns: int) -> UOp:
    """Several kernels with temporaries between them."""
    x = B.param(0, (rows, columns), F32)
    e = B.contiguous(B.exp2(B.sub(x, B.contiguous(B.reduce(x, Op.MAX, (1,))))))
    return B.div(e, B.contiguous(B.reduce(e, Op.ADD, (1,))))


def inputs_of(shape: tuple[int, ...], seed: int = 0) -> dict[str, np.ndarray]:
    return {"p0": np.random.default_rng(seed).standard_normal(shape).astype(np.float32)}


def agrees(program: Compiled, graph: UOp, inputs: dict[str, np.ndarray]) -> bool:
    found, expected = program(inputs).values, run(graph, inputs).values
    return all(np.allclose(a, e, rtol=1e-5) for a, e in zip(found, expected, strict=True))


def test_a_program_of_several_kernels_is_one_graph_that_later_runs_start_again(
    simulated: SimulatedDriver, target: CudaTarget
) -> None:
    graph = softmax(5, 37)
    program = compile(graph, target, config=UNSHARED)
    kernels = len(program.program.src)
    assert kernels >= 2
    for seed in range(3):
        assert agrees(program, graph, inputs_of((5, 37), seed))
    calls = Counter(simulated.calls)
    assert calls["cuGraphAddKernelNode"] == kernels and calls["cuGraphInstantiateWithFlags"] == 1
    assert calls["cuGraphLaunch"] == 3 and calls["cuLaunchKernel"] == 0
    assert calls["cuStreamSynchronize"] == 3


def test_only_arguments_are_copied_to_the_device_and_only_results_back(simulated: SimulatedDriver, target: CudaTarget) -> None:
    graph = softmax(4, 8)
    program = compile(graph, target, config=UNSHARED)
    assert agrees(program, graph, inputs_of((4, 8)))
    calls = Counter(simulated.calls)
    assert calls["cuMemcpyHtoDAsync_v2"] == 1 and calls["cuMemcpyDtoHAsync_v2"] == 1
    assert calls["cuMemAllocAsync"] == calls["cuMemFreeAsync"] >= 3
    assert not simulated.memory


def test_a_single_kernel_is_launched_alone(simulated: SimulatedDriver, target: CudaTarget) -> None:
    graph = B.add(B.param(0, (7,), F32), 1.0)
    assert agrees(compile(graph, target, config=UNSHARED), graph, inputs_of((7,)))
    assert Counter(simulated.calls)["cuLaunchKernel"] == 1 and "cuGraphCreate" not in simulated.calls


def test_a_graph_follows_the_sizes_of_a_run(simulated: SimulatedDriver, target: CudaTarget) -> None:
    n = B.variable("n", 1, 64)
    x = B.param(0, (n, 6), F32)
    total = B.contiguous(B.reduce(x, Op.ADD, (1,)))
    graph = B.mul(total, B.contiguous(B.reduce(total, Op.MAX, (0,))))
    program = compile(graph, target, config=UNSHARED)
    for size in (5, 64, 1):
        inputs = {"n": size, **inputs_of((size, 6), size)}
        found, expected = program(inputs).values[0], run(graph, inputs).values[0]
        assert np.allclose(found, expected, rtol=1e-5)
    calls = Counter(simulated.calls)
    assert calls["cuGraphInstantiateWithFlags"] == 1 and calls["cuGraphLaunch"] == 3


def test_memory_that_a_run_writes_starts_from_its_contents(target: CudaTarget) -> None:
    """A Buffer is an argument and a result: of six elements four are written."""
    buf = B.buffer(6, F32, unique=1)
    store = B.store(B.shrink(buf, (1,), (4,)), B.contiguous(B.mul(B.param(0, (4,), F32), 2.0)))
    graph = B.sink(store)
    inputs = {"b1": np.arange(6, dtype=np.float32), **inputs_of((4,))}
    found, expected = compile(graph, target, config=UNSHARED)(inputs), run(graph, inputs)
    assert np.array_equal(found.buffers["b1"], expected.buffers["b1"])


def test_a_graph_is_destroyed_with_its_program(simulated: SimulatedDriver, target: CudaTarget) -> None:
    graph = softmax(3, 4)
    program = compile(graph, target, config=UNSHARED)
    assert agrees(program, graph, inputs_of((3, 4)))
    assert len(simulated.graphs) == len(simulated.executables) == 1
    del program
    gc.collect()
    assert not simulated.graphs and not simulated.executables


def test_threads_that_share_a_program_get_their_own_results(target: CudaTarget) -> None:
    graph = softmax(3, 5)
    program = compile(graph, target, config=UNSHARED)
    wrong = list[int]()

    def call(seed: int) -> None:
        if not all(agrees(program, graph, inputs_of((3, 5), seed + 10 * k)) for k in range(5)):
            wrong.append(seed)

    threads = [threading.Thread(target=call, args=(seed,)) for seed in range(3)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong


class SimulatedBackend(CompilerBackend):
    name = "cuda"

    def version(self) -> str:
        return "simulated"

    def capabilities(self) -> Capabilities:
        return Capabilities.of_target(self.target, "cuda")


def test_programs_of_the_suite_have_allowed_results_on_it(simulated: SimulatedDriver, target: CudaTarget) -> None:
    backend = SimulatedBackend(target)
    for case in list(generate_cases(ConformanceTier.SMOKE))[::37]:
        if case.surface != NATIVE_SURFACE:
            verdicts = judge(Expectation(case), backend.run(case.graph, case.inputs), ConformanceLevel.STRICT)
            assert not [v for v in verdicts if v.failed], case.name
    assert not simulated.memory


def test_a_machine_without_a_device_is_unsupported(simulated: SimulatedDriver, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(simulated, "cuInit", lambda flags: 100, raising=False)
    with pytest.raises(Unsupported, match="status 100"):
        CudaTarget(ObjectCache(None))
