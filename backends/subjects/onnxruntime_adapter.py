"""ONNX Runtime on the processor, which optimizes each model at its default level."""

from __future__ import annotations

from typing import ClassVar

from uops.backends.subjects.library import import_library
from uops.backends.subjects.nodes import CompiledNodes
from uops.backends.subjects.onnx_model import OnnxEvaluator
from uops.spec.errors import Unsupported


class OnnxRuntime(OnnxEvaluator):
    """ONNX Runtime's CPU provider."""

    name: ClassVar[str] = "onnxruntime"
    extra = "onnxruntime"
    distributions = ("onnxruntime", "onnx")
    script_imports = ("import numpy as np", "import onnx", "import onnxruntime")
    script_loader = (
        "session = onnxruntime.InferenceSession(model.SerializeToString())",
        "",
        "def f(**arrays):",
        "    return session.run(None, {k: arrays[k] for k in names})[0]",
    )

    def __init__(self) -> None:
        self.runtime = import_library("onnxruntime", self.extra)
        super().__init__()

    def is_refusal(self, error: Exception) -> bool:
        """Return True for an operator without a kernel, or without a form for the dtype."""
        state = self.runtime.capi.onnxruntime_pybind11_state
        return isinstance(error, (state.NotImplemented, state.InvalidGraph, Unsupported))

    def load_document(self, document: bytes) -> CompiledNodes:
        """Load a model into a session of its own, with one thread."""
        options = self.runtime.SessionOptions()
        options.intra_op_num_threads, options.log_severity_level = 1, 4
        session = self.runtime.InferenceSession(document, options, providers=["CPUExecutionProvider"])
        return lambda arrays: list(session.run(None, arrays))
