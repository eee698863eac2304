"""Cost of a call of a compiled program, in calls of NumPy's add, and speed-up by a second core.

    OPENBLAS_NUM_THREADS=1 python bench/call.py [calls] [threads] [--seconds S]

*calls*: programs on 16 float32, each call with all arguments checked and a fresh result, beside `np.add(a, b)` on two such arrays.
The figure is the least processor time of a block of calls, with blocks in rotation. *native* is `program.function`, *mapping* the
program itself, *general* the same function on an argument that has to be copied first, *ctypes* a program compiled with
`entry="ctypes"`. *Tensors* and *@function* are the three operations as a user writes them: built, or traced, again for every
`realize()`. *jit* is the same function, traced once.

*threads*: the cost of handing a loop to threads, and the workloads of `bench/workloads.py` with one thread and with two, calls in
rotation. `wall` is the ratio of the least wall times; on a busy machine it says little. `balance` is the ratio of one thread's
processor time to that of the busier of two threads. It is the limit of `wall` on a machine with two free cores. `registers` is the
limit of the machine itself: multiply-adds that touch no memory, each in a system thread.
"""

from __future__ import annotations

import argparse
import ctypes
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import llvmlite.binding as llvm
import numpy as np
from workloads import WORKLOADS, build

from uops import Tensor, function, jit
from uops.backends.registry import create_backend
from uops.compiler import Compiled, Config, compile
from uops.compiler.runtime.frame import KernelLaunch, ProgramFrame
from uops.compiler.tensor.realize import capture
from uops.spec.ir import build as b
from uops.spec.ir import dtypes as dt
from uops.spec.ir.axes import AxisType
from uops.spec.ir.node import UOp, toposort
from uops.spec.ir.ops import Op

#: Elements of an operand.
N = 16
#: Vector accumulators of the multiply-adds, and lanes of each.
SUMS, LANES = 10, 16
#: Workloads measured with two threads.
THREADED = ("gemm-512", "gemm-1024", "conv2d", "attention", "softmax", "layernorm")
Action = Callable[[], object]


@dataclass
class SixTensors:
    """The argument of a function with many operands."""

    a: Tensor
    b: Tensor
    c: Tensor
    d: Tensor
    e: Tensor
    f: Tensor


def target() -> Any:
    """Return the llvm target."""
    return create_backend("llvm").target  # type: ignore[attr-defined]


# Calls


def three_ops() -> UOp:
    """Return a graph of three operations on two Params."""
    x, y = b.param(0, (N,), dt.float32), b.param(1, (N,), dt.float32)
    return b.mul(b.add(b.mul(x, y), x), y)


def build_kernel_chain(count: int) -> UOp:
    """Return a program of that many kernels."""
    x = b.param(0, (N,), dt.float32)
    for k in range(count - 1):
        x = b.contiguous(b.add(b.flip(x, (True,)), float(k + 1)))
    return b.add(b.flip(x, (True,)), b.param(1, (N,), dt.float32))


def time_in_rotation(actions: dict[str, Action], seconds: float) -> dict[str, float]:
    """Return the processor seconds per call of each action: the least of many short blocks, in rotation."""
    least = dict.fromkeys(actions, float("inf"))
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        for name, action in actions.items():
            count = 20 if least[name] > 1e-5 else 400
            start = time.process_time()
            for _ in range(count):
                action()
            least[name] = min(least[name], (time.process_time() - start) / count)
    return least


def measure_calls(seconds: float) -> None:
    """Print the cost of a call by every path, in nanoseconds and in calls of np.add."""
    x, y, wide = np.ones(N, np.float32), np.full(N, 2, np.float32), np.ones(2 * N, np.float32)
    actions: dict[str, Action] = {"np.add": lambda: np.add(x, y)}
    for name, graph in {"three ops": three_ops(), "1 kernel": build_kernel_chain(1), "10 kernels": build_kernel_chain(10)}.items():
        program, slow = (compile(graph, target(), Config(entry=entry)) for entry in ("native", "ctypes"))
        assert len(program.program.src) == (10 if name == "10 kernels" else 1)
        assert np.array_equal(program.function(x, y), slow.function(x, y))
        actions |= list_call_paths(name, program, slow, x, y, wide[::2])
    actions |= build_tensor_actions(x, y)
    seconds_of = time_in_rotation(actions, seconds)
    unit = seconds_of["np.add"]
    print(f"np.add of {N} float32: {unit * 1e9:.0f} ns")
    for name, spent in seconds_of.items():
        print(f"{name:44} {spent * 1e9:9.0f} ns {spent / unit:8.2f} np.add")


def list_call_paths(name: str, program: Compiled, slow: Compiled, x: Any, y: Any, strided: Any) -> dict[str, Action]:
    """Return the ways to call one program, by name."""
    native, other, inputs = program.function, slow.function, {"p0": x, "p1": y}
    return {
        f"{name}, native": lambda: native(x, y),
        f"{name}, mapping": lambda: program(inputs),
        f"{name}, general": lambda: native(strided, y),
        f"{name}, ctypes": lambda: other(x, y),
    }


def build_tensor_actions(x: Any, y: Any) -> dict[str, Action]:
    """Return the three operations as a user writes them, with Tensors, as a @function and by jit."""
    u, v = Tensor.from_numpy(x), Tensor.from_numpy(y)

    def f(a: Tensor, b: Tensor) -> Tensor:
        return (a * b + a) * b

    traced, jitted, jitted_six = function(f), jit(f), jit(lambda p: (p.a * p.b + p.c) * p.d + p.e * p.f)
    six = SixTensors(*[Tensor.from_numpy(x + k) for k in range(6)])
    return {
        "three ops, Tensors": lambda: f(u, v).realize(),
        "three ops, @function": lambda: traced(u, v).realize(),
        "three ops, jit": lambda: jitted(u, v),
        "five ops of a dataclass of six Tensors, jit": lambda: jitted_six(six),
    }


# Threads


def measure_fork_cost(seconds: float) -> None:
    """Print what two threads take beyond half of one thread's time, for a loop of two equal pieces."""
    i, j = b.range_(2, 0, AxisType.THREAD), b.range_(1 << 17, 1)
    place = b.at(b.param(0, (2,), dt.int64), i)
    store = b.store(place, b.add(b.mul(b.load(b.after(place, j)), 3), 1))
    kernel = target().load(target().compile(target().render(UOp(Op.LINEAR, tuple(toposort(b.end(b.end(store, j), i)))))))
    out = np.zeros(2, np.int64)
    ways = {}
    for threads in (1, 2):
        frame = ProgramFrame(1, 0, None, (), (), (), (KernelLaunch(kernel, ((0, 0),), (None,), 2, 1 << 30),), False, threads)
        ways[threads] = target().enter(frame, lambda: None)
    for name, pause in (("awake", 0.0), ("asleep", 0.001)):
        spent, end = {1: float("inf"), 2: float("inf")}, time.perf_counter() + seconds
        while time.perf_counter() < end:
            for threads, entered in ways.items():
                for _ in range(3):
                    time.sleep(pause)
                    start = time.perf_counter()
                    entered.execute([out.ctypes.data], [])
                    spent[threads] = min(spent[threads], time.perf_counter() - start)
        cost = spent[2] - spent[1] / 2
        print(f"to hand a piece of {spent[1] * 5e5:.0f} us to a thread that is {name}: {cost * 1e6:.1f} us")


#: A loop of rounds of independent multiply-adds, with one line per accumulator.
ROUNDS = """
declare {v} @llvm.fma.{lanes}({v}, {v}, {v})
define float @f(i64 %n) {{
entry:
  br label %loop
loop:
  %i = phi i64 [0, %entry], [%j, %loop]
  {old}
  {new}
  %j = add i64 %i, 1
  %more = icmp ult i64 %j, %n
  br i1 %more, label %loop, label %done
done:
  {first}
  {total}
  ret float %t{last}
}}
"""


def compile_multiply_adds() -> tuple[llvm.ExecutionEngine, Callable[[int], float]]:
    """Return a native function of a number of rounds, and the engine that keeps it alive."""

    def lines(form: str) -> str:
        return "\n  ".join(form.format(k=k, before=k - 1, v=v, lanes=f"v{LANES}f32", half=half) for k in range(SUMS))

    v, half = f"<{LANES} x float>", "<" + ", ".join(["float 0.5"] * LANES) + ">"
    text = ROUNDS.format(
        v=v,
        lanes=f"v{LANES}f32",
        old=lines("%a{k} = phi {v} [zeroinitializer, %entry], [%b{k}, %loop]"),
        new=lines("%b{k} = call {v} @llvm.fma.{lanes}({v} %a{k}, {v} {half}, {v} {half})"),
        first="%t-1 = fadd float 0.0, 0.0\n  " + lines("%c{k} = extractelement {v} %b{k}, i32 0"),
        total=lines("%t{k} = fadd float %t{before}, %c{k}"),
        last=SUMS - 1,
    )
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    machine = llvm.Target.from_default_triple().create_target_machine(cpu=llvm.get_host_cpu_name(), opt=2)
    engine = llvm.create_mcjit_compiler(llvm.parse_assembly(text), machine)
    engine.finalize_object()
    return engine, ctypes.CFUNCTYPE(ctypes.c_float, ctypes.c_int64)(engine.get_function_address("f"))


def measure_register_scaling(seconds: float) -> None:
    """Print the speed-up of two system threads over one where they share nothing but the machine."""
    wall, rounds = [float("inf")] * 2, 3_000_000
    engine, f = compile_multiply_adds()
    with ThreadPoolExecutor(2) as pool:
        end = time.perf_counter() + seconds
        while time.perf_counter() < end:
            for k in (1, 2):
                start = time.perf_counter()
                list(pool.map(f, [rounds] * k))
                wall[k - 1] = min(wall[k - 1], time.perf_counter() - start)
    del engine
    one, two, speed = 2 * wall[0], wall[1], 2 * 2 * rounds * SUMS * LANES / wall[1] / 1e9
    print(f"{'registers':12} {one * 1e3:9.3f} ms {two * 1e3:9.3f} ms {one / two:6.2f} {'':8}  {speed:8.1f} GFLOP/s")


def measure_thread_scaling(seconds: float) -> None:
    """Print the cost of a fork, and the workloads with one thread and with two."""
    measure_fork_cost(seconds / 4)
    print(f"{'':12} {'one thread':>12} {'two':>12} {'wall':>6} {'balance':>8}")
    measure_register_scaling(seconds / 2)
    for name in THREADED:
        instance = build(name, full=True)
        graph, inputs = capture(instance.output)
        programs = [compile(graph, target(), Config(threads=k)) for k in (1, 2)]
        runs = [(p.function, [inputs[k] for k in p.keys]) for p in programs]
        one, *two_threads = [f(*arguments) for f, arguments in (runs[0], *[runs[1]] * 4)]
        if any(other.tobytes() != two_threads[0].tobytes() for other in two_threads):
            raise SystemExit(f"{name}: two threads give now this, now that")
        if not np.allclose(one, two_threads[0], rtol=1e-3, atol=1e-3):  # sums may be taken in another order (R32)
            raise SystemExit(f"{name}: two threads give another result than one")
        wall, busy, end = [float("inf")] * 2, [float("inf")] * 2, time.perf_counter() + seconds
        while time.perf_counter() < end:
            for k, (f, arguments) in enumerate(runs):
                start, mine, all_ = time.perf_counter(), time.thread_time(), time.process_time()
                f(*arguments)
                mine, all_ = time.thread_time() - mine, time.process_time() - all_
                wall[k] = min(wall[k], time.perf_counter() - start)
                busy[k] = min(busy[k], max(mine, all_ - mine))
        w = WORKLOADS[name]
        print(
            f"{name:12} {wall[0] * 1e3:9.3f} ms {wall[1] * 1e3:9.3f} ms {wall[0] / wall[1]:6.2f} {busy[0] / busy[1]:8.2f}"
            f"  {w.work(w.full) / wall[1] / 1e9:8.1f} {w.unit}",
            flush=True,
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", nargs="*", choices=["calls", "threads", []], default=[], metavar="calls|threads")
    parser.add_argument("--seconds", type=float, default=4.0)
    options = parser.parse_args()
    for what in options.what or ("calls", "threads"):
        {"calls": measure_calls, "threads": measure_thread_scaling}[what](options.seconds)


if __name__ == "__main__":
    main()
