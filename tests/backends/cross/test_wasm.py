"""WebAssembly objects as modules, and the same module in wasmtime and in Node."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import NamedTuple

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

#: Runs a kernel of two float arrays on memory as the engine lays it out; the result is the first one's bytes.
_RUN = """
const memory = new WebAssembly.Memory({ initial: 256 });
const stack = new WebAssembly.Global({ value: "i32", mutable: true }, 8 << 20);
const env = { __linear_memory: memory, __stack_pointer: stack };
const functions = new WebAssembly.Instance(new WebAssembly.Module(support), { env }).exports;
const run = new WebAssembly.Instance(new WebAssembly.Module(kernel), { env: { ...env, ...functions } }).exports.kernel;
const out = 8 << 20, tables = out + 2 * input.length;
new Uint8Array(memory.buffer).set(input, out + input.length);
new Uint32Array(memory.buffer).set([out, out + input.length], tables / 4);
run(tables, tables + 64);
const result = JSON.stringify(Array.from(new Uint8Array(memory.buffer, out, input.length)));
"""
_NODE = (
    'const [kernel, support, input] = process.argv.slice(1).map((f) => require("fs").readFileSync(f));\n'
    + _RUN
    + "console.log(result);"
)


@pytest.fixture(scope="module")
def target() -> CrossTarget:
    pytest.importorskip("wasmtime", reason="wasmtime is not installed: pip install '.[cross]'")
    return CrossTarget(PROCESSORS["wasm"], LlvmTier.FULL, store=ObjectCache(None))


class Example(NamedTuple):
    """A kernel's modules with its input, and the bytes that wasmtime gives."""

    kernel: bytes
    support: bytes
    input: bytes
    expected: bytes


@pytest.fixture(scope="module")
def example(kernels, target: CrossTarget) -> Example:
    x = np.random.default_rng(0).standard_normal(64).astype(np.float32)
    x[:6] = [0.0, -0.0, np.inf, -np.inf, np.nan, 1e-40]
    graph = kernels.elementwise(64, dt.float32, (dt.float32,), lambda v: B.sqrt(B.mulacc(v, v, B.div(B.const(1.0), v))))
    binary = target.compile(target.render(graph))
    out = np.zeros_like(x)
    with target.lend([out, x]):
        target.load(binary)([out.ctypes.data, x.ctypes.data], [0, 0])
    support = export_functions(compile_support_functions("wasm"), SUPPORT_SYMBOLS)
    return Example(export_functions(binary.split(b"\n", 1)[1], ("kernel",)), support, x.tobytes(), out.tobytes())


def find_program(*names: str) -> str:
    """The path of the first program on PATH; the test is skipped if there is none."""
    path = next(filter(None, map(shutil.which, names)), None)
    return path or pytest.skip(f"{names[0]} is not on PATH")


def test_node_gives_the_same_bits_as_wasmtime(example: Example, tmp_path: Path) -> None:
    node = find_program("node")
    paths = [tmp_path / name for name in ("kernel.wasm", "support.wasm", "input")]
    for path, contents in zip(paths, example, strict=False):
        path.write_bytes(contents)
    printed = subprocess.run([node, "-e", _NODE, *map(str, paths)], capture_output=True, text=True, check=True).stdout
    assert bytes(json.loads(printed)) == example.expected


def test_a_browser_gives_the_same_bits_as_wasmtime(example: Example, tmp_path: Path) -> None:
    chromium = find_program("chromium", "chromium-browser", "google-chrome")
    arrays = ", ".join(f"Uint8Array.from({list(contents)})" for contents in example[:3])
    page = tmp_path / "page.html"
    page.write_text(
        f"<pre></pre><script>const [kernel, support, input] = [{arrays}];{_RUN}document.body.textContent = result;</script>"
    )
    command = [chromium, "--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={tmp_path}", "--dump-dom", page.as_uri()]
    printed = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120).stdout
    match = re.search(r"<body>(\[[\d,]+\])", printed)
    assert match, printed[-2000:]
    assert bytes(json.loads(match[1])) == example.expected


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
