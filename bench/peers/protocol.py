"""Protocol between the harness and one peer: a process per peer, lines of JSON on its standard input and output.

`serve(prepare, version, prepare_gradient)` answers three requests:

- `{"do": "version"}`
- `{"do": "prepare", "name", "folder", "layout", "targets"}`: the processor time to prepare the peer and to call it once. The result
  goes to `result.npy` in the folder.
- `{"do": "run", "seconds"}`: the wall times of calls.

`prepare(name, arrays, layout)` returns a function without arguments that computes the workload once, to its end, and returns what
`numpy.asarray` accepts. An error is an answer too, so that a peer that lacks a workload is shown as such.

With `targets`, positions of operands, the last array is a cotangent of the workload's result. Then
`prepare_gradient(name, arrays, targets)` returns a function that computes a list: the result, and the gradient of each target.

Layouts: the arrays of `transposed` are the workload's, transposed in memory. Those of `strided` are every second element of the
last axis of arrays twice as wide. Peers take their own views of them, inside the timed call.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

Array = Any
Prepare = Callable[[str, "list[Array]", str], Callable[[], Any]]
PrepareGradient = Callable[[str, "list[Array]", "list[int]"], Callable[[], "list[Any]"]]
LAYOUTS = ("plain", "transposed", "strided")


def to_layout(a: Array, layout: str) -> Array:
    """Return an array in the memory layout that a peer gets; integers and vectors stay as they are under `transposed`."""
    if a.dtype.kind in "iu" or layout == "plain":
        return a
    if layout == "transposed":
        return a if a.ndim < 2 else np.ascontiguousarray(np.swapaxes(a, -1, -2))
    wide = np.zeros((*a.shape[:-1], 2 * a.shape[-1]), a.dtype)
    wide[..., ::2] = a
    return wide


def view_operand(a: Any, layout: str) -> Any:
    """Return the workload's operand as a view of the stored array, by NumPy's indexing."""
    floats = "int" not in str(a.dtype)
    if layout == "transposed" and floats and len(a.shape) > 1:
        return a.swapaxes(-1, -2)
    return a[..., ::2] if layout == "strided" and floats else a


def write_operands(folder: Path, arrays: list[Array]) -> None:
    """Write the operands where a peer reads them, bfloat16 as its bits."""
    for k, a in enumerate(arrays):
        np.save(folder / f"{k}.npy", a.view(np.uint16) if a.dtype.name == "bfloat16" else a)
    (folder / "dtypes.json").write_text(json.dumps([a.dtype.name for a in arrays]))


def read_operands(folder: Path) -> list[Array]:
    """Return the operands that `write_operands` wrote."""
    operands = []
    for k, name in enumerate(json.loads((folder / "dtypes.json").read_text())):
        a = np.load(folder / f"{k}.npy")
        if name == "bfloat16":
            import ml_dtypes  # late: a peer's environment may lack it

            a = a.view(ml_dtypes.bfloat16)
        operands.append(a)
    return operands


def serve(prepare: Prepare, version: str, prepare_gradient: PrepareGradient | None = None) -> None:
    """Answer requests until the input ends."""
    out, sys.stdout = sys.stdout, sys.stderr  # what a library prints is no answer
    action: Callable[[], Any] | None = None
    for line in sys.stdin:
        request = json.loads(line)
        answer: dict[str, Any]
        try:
            if request["do"] == "prepare":
                folder = Path(request["folder"])
                start = time.process_time()
                if not request["targets"]:
                    action = prepare(request["name"], read_operands(folder), request["layout"])
                elif prepare_gradient is not None:
                    action = prepare_gradient(request["name"], read_operands(folder), request["targets"])
                else:
                    raise NotImplementedError("computes no gradients")
                np.save(folder / "result.npy", to_float64(action()))
                answer = {"first": time.process_time() - start}
            elif request["do"] == "run" and action is not None:
                answer = {"times": time_calls(action, request["seconds"])}
            else:
                answer = {"version": version}
        except Exception as e:  # whatever a peer raises is its answer
            answer = {"error": f"{type(e).__name__}: {e}"[:300]}
        print(json.dumps(answer), file=out, flush=True)


def to_float64(result: Any) -> Array:
    """Return a result as one array of float64; a list of results in one dimension, one after the other."""
    if isinstance(result, list):
        return np.concatenate([to_float64(r).ravel() for r in result])
    return np.asarray(result).astype(np.float64)


def time_calls(action: Callable[[], Any], seconds: float) -> list[float]:
    """Return the wall times of calls, as many as fit into `seconds`, two at least."""
    times: list[float] = []
    end = time.perf_counter() + seconds
    while len(times) < 2 or time.perf_counter() < end:
        start = time.perf_counter()
        action()
        times.append(time.perf_counter() - start)
    return times
