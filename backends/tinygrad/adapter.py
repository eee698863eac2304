"""tinygrad as a backend under test: it compiles and runs the graph that `uops.backends.tinygrad.forms` writes with its UOps.

There are two devices. `tinygrad` is PYTHON, its emulator of its own UOps, which needs nothing else. Before Python 3.12, that device
lacks float16, and tinygrad computes it in float32. `tinygrad-x86` is CPU:X86, its assembler, whose helper programs need clang.
"""

from __future__ import annotations

import math
import os
import platform
import shutil
from collections.abc import Mapping
from importlib.metadata import version
from typing import Any, ClassVar

import numpy as np

from uops.backends.answer import nonvoid_root_items
from uops.backends.arrays import STORAGE
from uops.backends.contract import Backend, Capabilities, Inputs, Missing
from uops.backends.tinygrad.forms import Node, TinygradApi, TranslationScope
from uops.spec.errors import SpecError
from uops.spec.extras import install_command
from uops.spec.ir import dtypes as dt
from uops.spec.ir.dtypes import DType
from uops.spec.ir.node import UOp
from uops.spec.ir.ops import Op
from uops.spec.ir.scope import scope_nodes
from uops.spec.result import Result

UNSUPPORTED = (Missing("Movement/Replicated", "*", "tinygrad has no op that checks copies to be equal"),)


class Tinygrad(Backend):
    """tinygrad on its PYTHON device."""

    name: ClassVar[str] = "tinygrad"
    device: ClassVar[str] = "PYTHON"

    def __init__(self) -> None:
        if self.device != "PYTHON" and shutil.which("clang") is None:
            raise SpecError(f"tinygrad's {self.device} device compiles its helper programs with clang, which is not on the path")
        os.environ["DEV"] = self.device
        try:
            from tinygrad import Device, Tensor, dtypes
            from tinygrad.helpers import PARALLEL
            from tinygrad.uop.ops import Ops
            from tinygrad.uop.ops import UOp as TinygradUOp
        except ImportError as e:
            raise SpecError(f"tinygrad is not installed: {install_command('peers')}") from e
        PARALLEL.value = 0  # compile in this process, which the judge controls, rather than in a pool of children
        kinds = {d: getattr(dtypes, d.name) for d in dt.STORABLE if hasattr(dtypes, d.name)}
        self._library = TinygradApi(Tensor, TinygradUOp, Ops, kinds, Device.DEFAULT)

    def version(self) -> str:
        """Return the versions of tinygrad and Python, and the device."""
        return f"tinygrad {version('tinygrad')} on {self.device}, Python {platform.python_version()}"

    def capabilities(self) -> Capabilities:
        """Declare the dtypes that tinygrad has, and the ops that it lacks."""
        return Capabilities(tuple(self._library.dtypes), UNSUPPORTED)

    def run(self, graph: UOp, inputs: Inputs) -> Result:
        """Evaluate a graph with tinygrad. Raises Unsupported, and any exception of tinygrad."""
        scope = TranslationScope(self._library, self.name, _InputUploader(self._library, inputs))
        values = [(scope[v], v) for v in nonvoid_root_items(graph)]
        written = scope.map_buffers_to_writers(graph)
        evaluated = {u for n, v in values if math.prod(n.shape) for u in scope_nodes(v)}  # an empty value is not computed
        effects = [scope[b].after(*(scope[e] for e in stores)) for b, stores in written.items() if not evaluated.issuperset(stores)]
        arrays = self._realize_and_read_outputs(values, effects)
        return Result(
            tuple(arrays), {f"b{b.arg.unique}": self._read_tensor_memory(self._library.tensor(scope[b]), b.dtype) for b in written}
        )

    def _realize_and_read_outputs(self, values: list[tuple[Node, UOp]], effects: list[Node]) -> list[Any]:
        """Realize all in one schedule, with the values in buffers of our own on the device, and return their bits."""
        tensor = self._library.tensor
        outputs = [tensor.empty(*n.shape, dtype=n.dtype) for n, _ in values]
        assignments = [o.assign(tensor(n)) for o, (n, _) in zip(outputs, values, strict=True) if math.prod(n.shape)]
        if tensors := [*assignments, *map(tensor, effects)]:
            tensor.realize(*tensors)
        return [self._read_tensor_memory(o, v.dtype) for o, (_, v) in zip(outputs, values, strict=True)]

    def _read_tensor_memory(self, t: Any, d: DType) -> Any:
        """Return the contents of a tensor's memory."""
        raw = bytes(t._buffer().as_memoryview()) if math.prod(t.shape) else b""
        return np.frombuffer(raw, STORAGE[d]).reshape(t.shape).copy()


class TinygradX86(Tinygrad):
    """tinygrad on CPU:X86, its own assembler."""

    name = "tinygrad-x86"
    device = "CPU:X86"


class _InputUploader:
    """The inputs of a run as tinygrad nodes, each created once."""

    def __init__(self, library: TinygradApi, inputs: Mapping[str, Any]) -> None:
        self._library, self._inputs = library, inputs
        self._nodes: dict[str, Node] = {}

    def upload_array_once(self, key: str, u: UOp) -> Node:
        """Return the input `key` in a buffer of `u`'s dtype, bit for bit; uninitialized if it is absent and `u` is a Buffer."""
        if key not in self._nodes:
            self._nodes[key] = self._upload_or_leave_uninitialized(key, u)
        return self._nodes[key]

    def number(self, name: str) -> int:
        return int(self._inputs[name])

    def _upload_or_leave_uninitialized(self, key: str, u: UOp) -> Node:
        tensor, d = self._library.tensor, self._library.dtypes[u.dtype]
        if not math.prod(u.shape) or (u.op is Op.BUFFER and key not in self._inputs):
            return tensor.empty(*u.shape, dtype=d).uop
        raw = np.ascontiguousarray(self._inputs[key]).tobytes()
        return tensor(raw, dtype=d).realize().uop.reshape(u.shape)
