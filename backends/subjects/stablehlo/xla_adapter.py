"""XLA on the processor, by the PJRT client of jaxlib. It compiles the text of a StableHLO module; JAX traces nothing."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import ClassVar

import numpy as np

from uops.backends.contract import FLUSHES_SUBNORMALS
from uops.backends.subjects.host import Array
from uops.backends.subjects.library import import_library
from uops.backends.subjects.nodes import Node
from uops.backends.subjects.stablehlo.emitter import StableHloEvaluator


class Xla(StableHloEvaluator):
    """XLA's CPU client with its default options."""

    name: ClassVar[str] = "xla"
    extra = "xla"
    distributions = ("jaxlib",)
    script_imports = (
        "import jax", "import jax.extend.backend as backend", "import numpy as np", 'jax.config.update("jax_enable_x64", True)'
    )  # fmt: skip
    script_loader = (
        'client = backend.get_backend("cpu")',
        "device = client.local_devices()[0]",
        "run = client.compile_and_load(TEXT, [device], backend.get_compile_options(1, 1))",
        "",
        "def f(**arrays):",
        "    return np.array(run.execute([jax.device_put(a, device) for a in arrays.values()])[0])",
    )
    traits = (FLUSHES_SUBNORMALS,)  # the default of its option `xla_cpu_ftz`

    def __init__(self) -> None:
        os.environ.setdefault("JAX_PLATFORMS", "cpu")
        self.jax = import_library("jax", self.extra)
        self.jax.config.update("jax_enable_x64", True)  # so that 64-bit arrays are passed as they are
        self.backend = import_library("jax.extend.backend", self.extra)
        super().__init__()

    def is_refusal(self, error: Exception) -> bool:
        """Return True for what XLA says is not implemented."""
        return super().is_refusal(error) or "UNIMPLEMENTED" in str(error)

    def load_text(self, text: str, outputs: Sequence[Node]) -> Callable[[list[Array]], list[Array]]:
        """Compile for one device."""
        client = self.backend.get_backend("cpu")
        device = client.local_devices()[0]
        executable = client.compile_and_load(text, [device], self.backend.get_compile_options(1, 1))
        return lambda arrays: [np.array(x) for x in executable.execute([self.jax.device_put(a, device) for a in arrays])]
