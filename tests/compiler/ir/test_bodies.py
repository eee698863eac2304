"""Equal kernels have one body, are lowered, rendered and compiled once, and are told apart by all that decides their code."""

import threading
from dataclasses import replace

import pytest

from uops.compiler.config import Config
from uops.compiler.ir.bodies import (
    KernelBodyCache,
    list_possibly_written_arguments,
    list_possibly_written_slots,
    map_kernel_bodies,
    renumber_loops_and_map_nodes,
)
from uops.compiler.log import record_transforms
from uops.compiler.pipeline import lower, stages
from uops.compiler.runtime.program import compile
from uops.compiler.target import Kernel, MachineModel, Target
from uops.spec.errors import CompileError, SpecError
from uops.spec.ir import build as b
from uops.spec.ir import dtypes as dt
from uops.spec.ir.args import AddrSpace
from uops.spec.ir.axes import AxisType
from uops.spec.ir.node import UOp, toposort
from uops.spec.ir.ops import Op
from uops.spec.verify.dialects import Dialect
from uops.spec.verify.verifier import verify


class Counting(Target):
    """A target that notes what it renders and compiles."""

    def __init__(self, target: Target, key: str = "counting", machine: MachineModel | None = None) -> None:
        self.target, self.key = target, key
        self.name, self.dtypes, self.ops = target.name, target.dtypes, target.ops
        self.machine = machine or MachineModel()
        self.rendered: list[UOp] = []

    def render(self, linear: UOp) -> str:
        self.rendered.append(linear)
        return self.target.render(linear)

    def compile(self, source: str) -> bytes:
        return self.target.compile(source)

    def load(self, binary: bytes) -> Kernel:
        return self.target.load(binary)


PLAIN = Config(verify=False)


def layers(count: int, n: int = 5) -> UOp:
    """The same layer again and again: a sum over rows, then a function of it with other memory each time."""
    x = b.param(0, (n, n), dt.float32)
    for k in range(count):
        w = b.param(k + 1, (n, n), dt.float32)
        x = b.contiguous(b.mul(b.add(x, b.reduce(w, Op.ADD, (1,))), 0.5))
    return x


def bodies(program: UOp) -> list[UOp]:
    return [c.src[0] for c in program.src]


def test_equal_layers_have_one_body(pyref: Target) -> None:
    found = stages(layers(4), pyref)
    for stage in ("rangeify", "optimize", "expand", "select", "linearize", "plan", "render"):
        assert len(found[stage].src) > len(set(bodies(found[stage]))) <= 3, stage


def test_equal_bodies_are_rendered_once_in_a_program_and_in_a_process(pyref: Target) -> None:
    target = Counting(pyref, key="once")
    program = lower(layers(4), target, config=PLAIN)
    assert len(target.rendered) == len(set(target.rendered)) == len(set(bodies(program)))
    before = len(target.rendered)
    more = lower(layers(6), target, config=PLAIN)
    assert len(more.src) > len(program.src) and len(target.rendered) == before


def test_another_target_setting_or_machine_is_another_kernel(pyref: Target) -> None:
    graph, count = layers(2), 0
    machine = MachineModel(vector_bytes=16)
    for target in (Counting(pyref, "a"), Counting(pyref, "b"), Counting(pyref, "a", machine)):
        for config in (PLAIN, replace(PLAIN, optimize=False)):
            before = len(target.rendered)
            lower(graph, target, config=config)
            assert len(target.rendered) > before
            count += 1
    assert count == 6


@pytest.mark.parametrize("config", [Config(verify=True), Config(reuse=False)], ids=["verify", "reuse"])
def test_nothing_is_taken_from_another_program_where_work_is_to_be_seen(pyref: Target, config: Config) -> None:
    target = Counting(pyref, key="seen")
    lower(layers(2), target, config=PLAIN)
    before = len(target.rendered)
    lower(layers(2), target, config=config)
    assert len(target.rendered) > before


def test_whoever_records_hears_every_pass(pyref: Target) -> None:
    target = Counting(pyref, key="heard")
    lower(layers(2), target, config=PLAIN)
    with record_transforms() as log:
        lower(layers(2), target, config=PLAIN)
    assert {"order", "accumulate"} <= {m.pass_name for m in log.transforms}


def test_equal_bodies_compute_what_each_of_them_would(pyref: Target) -> None:
    import numpy as np

    rng = np.random.default_rng(0)
    arrays = {f"p{k}": rng.integers(-8, 8, (5, 5)).astype(np.float32) for k in range(5)}
    expected = arrays["p0"]
    for k in range(1, 5):
        expected = (expected + arrays[f"p{k}"].sum(1, keepdims=True)) * np.float32(0.5)
    found = compile(layers(4), pyref)(arrays).values[0]
    np.testing.assert_array_equal(found, expected)


class Slow(Counting):
    """Compiles beside the lowering; `wrong` kernels it refuses."""

    compiles_outside_lock = True
    threads: set[str]
    wrong: str

    def compile(self, source: str) -> bytes:
        self.threads.add(threading.current_thread().name)
        if self.wrong in source:
            raise CompileError(f"the compiler refuses {self.wrong}")
        return super().compile(source)


def slow(target: Target, key: str, wrong: str = "no such text") -> Slow:
    found = Slow(target, key, MachineModel(cores=2))
    found.wrong, found.threads = wrong, set()
    return found


def test_compiling_beside_the_lowering_gives_the_same_program(pyref: Target) -> None:
    target = slow(pyref, "beside")
    config = Config(verify=False, reuse=False)
    assert lower(layers(3), target, config=config) is stages(layers(3), target, config)["render"]
    assert target.threads == {"uops-compile", threading.main_thread().name}  # the second in stages
    assert not any(t.name == "uops-compile" for t in threading.enumerate())


def test_what_a_compiler_raises_beside_the_lowering_is_raised(pyref: Target) -> None:
    with pytest.raises(CompileError, match="refuses mul"):
        lower(layers(3), slow(pyref, "refusing", "mul"), config=PLAIN)
    assert not any(t.name == "uops-compile" for t in threading.enumerate())


def test_a_kernel_that_failed_is_not_kept(pyref: Target) -> None:
    target = slow(pyref, "mended", "mul")
    with pytest.raises(CompileError):
        lower(layers(2), target, config=PLAIN)
    target.wrong = "no such text"
    assert lower(layers(2), target, config=PLAIN) is lower(layers(2), slow(pyref, "mended"), config=Config(reuse=False))


# canonical


def kernel(*ids: int, extents: tuple[int, ...] = (2, 3, 4)) -> UOp:
    loops = [b.range_(n, k, AxisType.LOOP) for k, n in zip(ids, extents)]
    flat = loops[0]
    for r in loops[1:]:
        flat = b.add(b.mul(flat, r.src[0]), r)
    out, source = (b.param(k, (24,), dt.int32) for k in range(2))
    effect = b.store(b.at(out, flat), b.neg(b.load(b.at(source, flat))))
    for r in reversed(loops):
        effect = b.end(effect, r)
    return b.sink(effect, name="kernel")


def test_loops_are_numbered_from_zero_in_the_order_they_had() -> None:
    done, put = renumber_loops_and_map_nodes(kernel(7, 12, 30))
    assert done is renumber_loops_and_map_nodes(kernel(1, 2, 3))[0] is kernel(0, 1, 2)
    assert renumber_loops_and_map_nodes(done) == (done, {})
    assert put[kernel(7, 12, 30)] is done
    swapped = renumber_loops_and_map_nodes(kernel(12, 7, 30))[0]
    assert swapped is not done and swapped is kernel(1, 0, 2)


def test_other_extents_are_another_body() -> None:
    assert (
        renumber_loops_and_map_nodes(kernel(7, 12, 30))[0]
        is not renumber_loops_and_map_nodes(kernel(7, 12, 30, extents=(4, 3, 2)))[0]
    )


def test_each_changes_a_body_once() -> None:
    body, other = kernel(0, 1, 2), kernel(1, 0, 2)
    buffers = [b.buffer(24, dt.int32, unique=k) for k in range(4)]
    calls = [b.call(u, buffers[k], buffers[k + 1]) for k, u in enumerate((body, other, body))]
    seen: list[UOp] = []

    def change(u: UOp) -> UOp:
        seen.append(u)
        return u.replace(tag="changed")

    after = map_kernel_bodies(UOp(Op.LINEAR, tuple(calls)), change)
    assert seen == [body, other]
    assert [c.src[0].tag for c in after.src] == ["changed"] * 3
    assert [c.src[1:] for c in after.src] == [c.src[1:] for c in calls]


def test_kept_bodies_are_bounded_and_the_least_recently_used_goes_first() -> None:
    kept = KernelBodyCache(2)
    one, two, three = (b.const(k) for k in range(3))
    for u in (one, two):
        assert kept.get(u, "key") is None
        kept.put(u, "key", b.neg(u))
    assert kept.get(one, "key") is b.neg(one)
    kept.put(three, "key", b.neg(three))
    assert kept.get(two, "key") is None
    assert kept.get(one, "key") is b.neg(one) and kept.get(one, "other") is None


# R130: memory inside of a body


def private(size: int, unique: int, space: AddrSpace) -> UOp:
    """A kernel that moves an element through memory of its own."""
    memory = b.buffer(size, dt.int32, addrspace=space, unique=unique)
    filled = b.after(memory, b.store(b.at(memory, 0), b.load(b.at(b.param(1, (4,), dt.int32), 0))))
    return b.sink(b.store(b.at(b.param(0, (4,), dt.int32), 0), b.load(b.at(filled, 0))), name="kernel")


def launch(*kernels: UOp) -> UOp:
    out = [b.buffer(4, dt.int32, unique=k + 1) for k in range(len(kernels) + 1)]
    return UOp(Op.LINEAR, tuple(b.call(u, out[k], out[k + 1], written=(0,)) for k, u in enumerate(kernels)))


def broken(root: UOp) -> str:
    try:
        verify(root, Dialect.SCHEDULED)
    except SpecError as e:
        return str(e)
    return ""


@pytest.mark.parametrize("space", [AddrSpace.LOCAL, AddrSpace.REG])
def test_bodies_may_use_one_number_for_different_memory(space: AddrSpace) -> None:
    assert broken(launch(private(1, 1, space), private(2, 1, space))) == ""


def test_one_body_may_not_and_global_memory_may_not_anywhere() -> None:
    memory = [b.buffer(n, dt.int32, addrspace=AddrSpace.REG, unique=1) for n in (1, 2)]
    stores = [b.store(b.at(m, 0), b.const(0)) for m in memory]
    twice = b.sink(b.group(*stores, b.store(b.at(b.param(0, (4,), dt.int32), 0), b.const(0))), name="twice")
    assert "BUFFER.C5" in broken(UOp(Op.LINEAR, (b.call(twice, b.buffer(4, dt.int32, unique=9), written=(0,)),)))
    small, large = b.buffer(4, dt.int32, unique=1), b.buffer(8, dt.int32, unique=1)
    one, two = (b.sink(b.store(b.at(b.param(0, (n,), dt.int32), 0), b.const(0)), name="one") for n in (4, 8))
    assert "BUFFER.C5" in broken(UOp(Op.LINEAR, (b.call(one, small, written=(0,)), b.call(two, large, written=(0,)))))
    assert any(u.op is Op.BUFFER for u in toposort(twice))


def test_a_call_may_write_what_it_declares_and_else_all() -> None:
    memory = [b.buffer(4, dt.int32, unique=k) for k in range(3)]
    body = b.sink(b.store(b.param(0, (4,), dt.int32), b.param(1, (4,), dt.int32)))
    for declared, slots in ((None, [0, 1, 2]), ((), []), ((0, 2), [0, 2])):
        call = b.call(body, *memory) if declared is None else b.call(body, *memory, written=declared)
        assert list(list_possibly_written_slots(call)) == slots
        assert list(list_possibly_written_arguments(call)) == [memory[k] for k in slots]
