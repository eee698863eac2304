"""Scripts that show a wrong result of a library without this package: ready for the library's own tracker.

Takes: an adapter, a program, its inputs, and the element that is wrong. Gives: the text of a script that uses the library alone.
It prints what is expected and what it got, and ends with status 1 if they differ.

The adapter evaluates the program once more, on modules that record each call. So the script holds the calls that the judge saw. An
adapter names its modules (`recorded_modules`) and the lines that import them (`script_imports`).
"""

from __future__ import annotations

import copy
import re
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import get_context
from typing import Any, NamedTuple

import numpy as np

from uops.backends.answer import collect_caller_input_nodes, is_variable
from uops.backends.arrays import STORAGE
from uops.backends.registry import create_backend
from uops.backends.subjects.evaluator import Evaluator
from uops.backends.subjects.nodes import Node, NodeEvaluator
from uops.backends.subjects.scripts.recording import RecordedModule, Recorder, write_argument
from uops.backends.subjects.scripts.values import write_array
from uops.backends.subjects.walk import GraphRun, Scope
from uops.spec.errors import Unsupported, UopsError
from uops.spec.ir import dtypes as dt
from uops.spec.ir.node import UOp
from uops.spec.ir.ops import ALU, Op
from uops.spec.ir.text import parse, show
from uops.spec.rows.optional import find_optional_function, list_nodes_outside_optional_bodies

#: A copy of an array that was just made.
_COPY_OF_NEW_ARRAY = re.compile(r"np\.array\((np\.array\(.*\))\)$")


def _record_calls(library: Evaluator) -> tuple[Evaluator, Recorder]:
    """Return a copy of an adapter that records the calls of its modules, and the recorder."""
    if not library.recorded_modules:
        raise Unsupported("a script: the adapter does not say which modules it calls", library.name)
    recorder, recording = Recorder(), copy.copy(library)
    for attribute, path in library.recorded_modules.items():
        setattr(recording, attribute, RecordedModule(recorder, getattr(library, attribute), path))
    recording.functions = recording.list_functions()
    recording.optional_functions = recording.list_optional_functions()
    return recording, recorder


class _FunctionText(NamedTuple):
    """The lines that make the inputs, those that define `f`, and the names of its arguments."""

    inputs: list[str]
    definition: list[str]
    arguments: list[str]


def _write_function(library: Evaluator, graph: UOp, inputs: Mapping[str, Any], output: int) -> _FunctionText:
    """Write the function that computes an output of a program, with its inputs."""
    nodes = dict(sorted(collect_caller_input_nodes(graph).items()))
    variables = {k: int(inputs[k]) for k, u in nodes.items() if is_variable(u)}
    arrays = {k: np.array(inputs[k], STORAGE[u.dtype], order="C") for k, u in nodes.items() if k in inputs and k not in variables}
    root = graph.src[output] if graph.op is Op.TUPLE else graph
    if isinstance(library, NodeEvaluator):
        symbols = {k: Node(nodes[k].dtype, a.shape) for k, a in arrays.items()}
        scope = Scope(GraphRun(library, variables, symbols))
        scope.evaluate(root)
        definition = library.write_function(scope.value(root), symbols)
        return _FunctionText([f"{k} = {write_array(a)}" for k, a in arrays.items()], definition, [f"{k}={k}" for k in arrays])
    recording, recorder = _record_calls(library)
    made: list[str] = []
    values: dict[str, Any] = {}
    for k, array in arrays.items():
        values[k] = recording.import_array(array, nodes[k].dtype)
        *before, last = recorder.lines
        made += [*before, _COPY_OF_NEW_ARRAY.sub(r"\1", last.replace(f"{values[k].name} = ", f"{k} = ", 1))]
        values[k].name = k
        recorder.lines.clear()
    scope = Scope(GraphRun(recording, variables, values))
    scope.evaluate(root)
    body = [*recorder.lines, f"return {write_argument(scope.value(root))}"]
    definition = [f"def f({', '.join(values)}):", *(f"    {line}" for line in body)]
    if library.script_wrapper:
        definition += ["", f"f = {library.script_wrapper.format('f')}"]
    return _FunctionText(made, definition, list(values))


def write_script(
    library: Evaluator, graph: UOp, inputs: Mapping[str, Any], output: int, element: int, expected: str, search: Sequence[str]
) -> str:
    """Return the text of a script that computes one output of a program, and compares an element with what is expected.

    `expected` is the text of the allowed set. `search` are words to look for in the library's tracker. Raises Unsupported.
    """
    function = _write_function(library, graph, inputs, output)
    text = "\n".join([*function.inputs, *function.definition])
    imports = [line for line in ("import ml_dtypes", "import numpy as np") if f"{line.split()[-1]}." in text]
    lines = [
        f'"""{library.version()}. Search: {" ".join(search)}"""',
        "",
        "import sys",
        *dict.fromkeys([*imports, *library.script_imports]),
        "",
        *function.inputs,
        "",
        *function.definition,
        "",
        f"got = f({', '.join(function.arguments)}).reshape(-1)[{element}].item()",
        f"print({f'expected {expected}, got'!r}, got)",
        _write_exit(expected),
    ]
    return "\n".join(lines) + "\n"


def _write_exit(expected: str) -> str:
    """Return the line that ends the script with status 1 if the element is not in the set that a text describes."""
    if not expected.startswith("["):
        return f"sys.exit(str(got) not in {tuple(expected.removeprefix('one of ').split(', '))!r})"
    (low, high), rest = expected[1 : expected.index("]")].split(", "), expected[expected.index("]") :].split(" or ")[1:]
    inside = f"float('{low}') <= got <= float('{high}')"
    return f"sys.exit(not ({inside} or str(got) in {tuple(rest)!r}))" if rest else f"sys.exit(not {inside})"


def list_search_words(graph: UOp) -> list[str]:
    """Return words for a search of a tracker: the program's functions and dtypes, without what every program has."""
    nodes = list_nodes_outside_optional_bodies(graph)
    optional = [f.name for u in nodes if u.op is Op.FUNCTION and (f := find_optional_function(u)) is not None]
    ops = [u.op.name.lower() for u in nodes if u.op in ALU or u.op is Op.REDUCE]
    return list(dict.fromkeys([*optional, *ops, *(u.dtype.name for u in nodes if u.dtype in dt.STORABLE), "wrong", "result"]))


class NoScript(UopsError):
    """A script that cannot be written: the adapter records no calls, or the library refused one or ended the process."""


def write_script_in_own_process(
    backend: str, graph: UOp, inputs: Mapping[str, Any], output: int, element: int, expected: str, search: Sequence[str]
) -> str:
    """Return the text of a script, made in a process that the library may end. Raises NoScript."""
    with ProcessPoolExecutor(1, get_context("spawn")) as pool:
        task = pool.submit(_write_script_or_reason, backend, show(graph), dict(inputs), output, element, expected, search)
        try:
            script, reason = task.result()
        except BrokenProcessPool as e:
            raise NoScript(f"{backend} ended the process in which its calls were recorded") from e
    if script is None:
        raise NoScript(reason)
    return script


def _write_script_or_reason(
    backend: str, text: str, inputs: dict[str, Any], output: int, element: int, expected: str, search: Sequence[str]
) -> tuple[str | None, str]:
    library = create_backend(backend)
    if not isinstance(library, Evaluator):
        return None, f"{backend} is no library with an adapter of this package"
    try:
        return write_script(library, parse(text), inputs, output, element, expected, search), ""
    except Exception as e:  # a library may raise anything
        return None, f"{type(e).__name__}: {e}"
