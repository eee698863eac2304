"""IREE on the processor: its compiler makes a module of virtual-machine code for LLVM, which its runtime executes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import numpy as np

from uops.backends.arrays import STORAGE
from uops.backends.contract import FLUSHES_SUBNORMALS, Missing
from uops.backends.subjects.host import Array
from uops.backends.subjects.library import import_library
from uops.backends.subjects.nodes import Node
from uops.backends.subjects.stablehlo.emitter import StableHloEvaluator


class Iree(StableHloEvaluator):
    """IREE's `llvm-cpu` for the processor at hand, executed in this thread."""

    name: ClassVar[str] = "iree"
    extra = "iree"
    distributions = ("iree-base-compiler", "iree-base-runtime")
    lacks = (
        *StableHloEvaluator.lacks,
        *(Missing(row, "fp8*", "IREE does not compile it") for row in ("Decomposed/Sqrt", "Elementwise/Trunc")),
        Missing("Decomposed/Sin", "float64", "IREE links no function for it"),
        Missing("Movement/Flip", "uint*", "IREE does not compile it"),
    )
    script_imports = ("import iree.compiler", "import iree.runtime", "import numpy as np")
    script_loader = (
        'arguments = ["--iree-llvmcpu-target-cpu=host", "--iree-input-demote-f64-to-f32=false"]',
        'code = iree.compiler.compile_str(TEXT, target_backends=["llvm-cpu"], input_type="stablehlo", extra_args=arguments)',
        'config = iree.runtime.Config("local-sync")',
        "context = iree.runtime.SystemContext(config=config)",
        "context.add_vm_module(iree.runtime.VmModule.copy_buffer(context.instance, code))",
        "",
        "def f(**arrays):",
        "    arrays = [iree.runtime.asdevicearray(config.device, a) for a in arrays.values()]",
        '    return np.array(context.modules.module["main"](*arrays).to_host())',
    )
    traits = (FLUSHES_SUBNORMALS,)  # its runtime sets the processor so before it runs code (iree/base/internal/fpu_state.h)

    def __init__(self) -> None:
        self.compiler = import_library("iree.compiler", self.extra)
        self.runtime = import_library("iree.runtime", self.extra)
        self.config = self.runtime.Config("local-sync")
        super().__init__()

    def is_refusal(self, error: Exception) -> bool:
        """Return True for what the compiler has no lowering for, or no function to link."""
        words = ("failed to legalize", "undefined symbol")
        return super().is_refusal(error) or any(w in str(error) for w in words)

    def load_text(self, text: str, outputs: Sequence[Node]) -> Callable[[list[Array]], list[Array]]:
        """Compile in a process of the compiler, and load the code into a context of its own."""
        code = self.compiler.compile_str(
            text,
            target_backends=["llvm-cpu"],
            input_type="stablehlo",
            extra_args=["--iree-llvmcpu-target-cpu=host", "--iree-input-demote-f64-to-f32=false"],
        )
        context = self.runtime.SystemContext(config=self.config)
        context.add_vm_module(self.runtime.VmModule.copy_buffer(context.instance, code))
        main = context.modules.module["main"]

        def run(arrays: list[Array]) -> list[Array]:
            results = main(*(self.runtime.asdevicearray(self.config.device, a) for a in arrays))
            listed = results if isinstance(results, tuple) else (results,)
            return [_read_bits(r, x) for r, x in zip(listed, outputs, strict=True)]

        return run


def _read_bits(result: Any, x: Node) -> Array:
    """Return a result in the dtype of its node; modules name integers without a sign."""
    return np.array(result.to_host(), order="C").view(STORAGE[x.dtype]).reshape(x.shape)
