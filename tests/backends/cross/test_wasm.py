"""WebAssembly objects as modules, and the same module in wasmtime and in Node."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

from uops.backends.cache import ObjectCache
from uops.backends.cross.processors import PROCESSORS
from uops.backends.cross.support import SUPPORT_SYMBOLS, render_support_functions
from uops.backends.cross.target import CrossTarget, compile_support_functions
from uops.backends.cross.wasm import export_functions
from uops.backends.llvm.binding import LlvmTier
from uops.spec.errors import Crash
from uops.spec.ir import build as B
from uops.spec.ir import dtypes as dt

#: Runs a kernel of two float arrays on memory as the engine lays it out, and prints the first one's bytes.
_NODE = """
const [kernel, support, input] = process.argv.slice(1).map((f) => require("fs").readFileSync(f));
const memory = new WebAssembly.Memory({ initial: 256 });
const stack = new WebAssembly.Global({ value: "i32", mutable: true }, 8 << 20);
const env = { __linear_memory: memory, __stack_pointer: stack };
const functions = new WebAssembly.Instance(new WebAssembly.Module(support), { env }).exports;
const run = new WebAssembly.Instance(new WebAssembly.Module(kernel), { env: { ...env, ...functions } }).exports.kernel;
const out = 8 << 20, tables = out + 2 * input.length;
new Uint8Array(memory.buffer).set(input, out + input.length);
new Uint32Array(memory.buffer).set([out, out + input.length], tables / 4);
run(tables, tables + 64);
console.log(JSON.stringify(Array.from(new Uint8Array(memory.buffer, out, input.length))));
"""


@pytest.fixture(scope="module")
def target() -> CrossTarget:
    pytest.importorskip("wasmtime", reason="wasmtime is not installed: pip install '.[cross]'")
    return CrossTarget(PROCESSORS["wasm"], LlvmTier.FULL, store=ObjectCache(None))


def test_node_gives_the_same_bits_as_wasmtime(kernels, target: CrossTarget, tmp_path: Path) -> None:
    node = shutil.which("node")
    if node is None:
        pytest.skip("node is not on PATH")
    x = np.random.default_rng(0).standard_normal(64).astype(np.float32)
    x[:6] = [0.0, -0.0, np.inf, -np.inf, np.nan, 1e-40]
    graph = kernels.elementwise(64, dt.float32, (dt.float32,), lambda v: B.sqrt(B.mulacc(v, v, B.div(B.const(1.0), v))))
    binary = target.compile(target.render(graph))
    out = np.zeros_like(x)
    with target.lend([out, x]):
        target.load(binary)([out.ctypes.data, x.ctypes.data], [0, 0])
    paths = [tmp_path / name for name in ("kernel.wasm", "support.wasm", "input")]
    modules = (
        export_functions(binary.split(b"\n", 1)[1], ("kernel",)),
        export_functions(compile_support_functions("wasm"), SUPPORT_SYMBOLS),
    )
    for path, contents in zip(paths, (*modules, x.tobytes()), strict=True):
        path.write_bytes(contents)
    printed = subprocess.run([node, "-e", _NODE, *map(str, paths)], capture_output=True, text=True, check=True).stdout
    assert bytes(json.loads(printed)) == out.tobytes()


def test_an_object_that_lacks_a_function_or_is_damaged_is_refused() -> None:
    image = compile_support_functions("wasm")
    assert export_functions(image, ("fma",)) != image
    with pytest.raises(Crash, match="does not define kernel"):
        export_functions(image, ("kernel",))
    for damaged in (b"", b"\x7fELF", image[:40], image[: len(image) // 2]):
        with pytest.raises(Crash, match="wasm: the object"):
            export_functions(damaged, ("fma",))


def test_an_object_with_data_is_refused() -> None:
    from uops.backends.cross.codegen import GENERATOR

    text = "@table = constant [2 x i32] [i32 1, i32 2]\ndefine ptr @f() {\n  ret ptr @table\n}\n"
    with pytest.raises(Crash, match="has data"):
        export_functions(GENERATOR.compile_object("wasm", "FAST", text), ("f",))


def test_support_functions_are_all_there() -> None:
    assert all(f"@{name}(" in render_support_functions() for name in SUPPORT_SYMBOLS)
