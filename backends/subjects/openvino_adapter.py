"""OpenVINO on the processor. It takes the ONNX models of `onnx_model`, and computes floats in float32."""

from __future__ import annotations

import io
from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np

from uops.backends.subjects.host import Array
from uops.backends.subjects.library import import_library
from uops.backends.subjects.nodes import CompiledNodes
from uops.backends.subjects.onnx_model import OnnxEvaluator
from uops.spec.ir import dtypes as dt
from uops.spec.ir.dtypes import DType


class OpenVino(OnnxEvaluator):
    """OpenVINO's CPU plugin.

    It was seen to compute int64 in int32, so only the dtypes that it computes in are declared.
    """

    name: ClassVar[str] = "openvino"
    extra = "openvino"
    distributions = ("openvino", "onnx")
    script_imports = ("import io", "import numpy as np", "import onnx", "import openvino")
    script_loader = (
        "core = openvino.Core()",
        'options = {"INFERENCE_PRECISION_HINT": "f32"}',
        'compiled = core.compile_model(core.read_model(io.BytesIO(model.SerializeToString())), "CPU", options)',
        "",
        "def f(**arrays):",
        "    return compiled({k: arrays[k] for k in names})[compiled.outputs[0]]",
    )

    def __init__(self) -> None:
        self.openvino = import_library("openvino", self.extra)
        self.core = self.openvino.Core()
        super().__init__()

    def list_dtypes(self) -> dict[DType, Any]:
        """Return the dtypes that the plugin computes in."""
        return {d: n for d, n in super().list_dtypes().items() if d in (dt.bool_, dt.int8, dt.uint8, dt.int32, dt.float32)}

    def is_refusal(self, error: Exception) -> bool:
        """Return True for an operator without a conversion, or without an implementation for the dtype."""
        words = ("not supported", "unsupported", "not implemented", "cannot be converted", "not allowed", "element type")
        return super().is_refusal(error) or (isinstance(error, RuntimeError) and any(w in str(error).lower() for w in words))

    def load_document(self, document: bytes) -> CompiledNodes:
        """Compile a model for the processor."""
        options = {"INFERENCE_PRECISION_HINT": "f32", "INFERENCE_NUM_THREADS": 1}
        compiled = self.core.compile_model(self.core.read_model(io.BytesIO(document)), "CPU", options)

        def run(arrays: Mapping[str, Array]) -> list[Array]:
            results = compiled(arrays)
            return [np.array(results[port]) for port in compiled.outputs]

        return run
