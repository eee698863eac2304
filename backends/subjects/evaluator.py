"""`Evaluator`: a backend that evaluates TENSOR graphs with the functions of somebody else's library.

An adapter supplies what `Library` asks for. The base does what is alike for all: index arithmetic, scopes, symbolic sizes, memory,
and refusals. A library that compiles has `compile`, which gets the evaluation of the whole graph as one function.

Nothing is corrected here. What a library lacks is declared. Some libraries lack functions for some dtypes. Such a library is asked
a tiny program of each row and dtype before a run (`probe`). What it refuses is declared in its own words.
"""

from __future__ import annotations

import platform
from collections.abc import Mapping, Sequence
from functools import cached_property
from importlib.metadata import version
from typing import Any, ClassVar

import numpy as np

from uops.backends.answer import collect_caller_input_nodes, is_variable, nonvoid_root_items
from uops.backends.arrays import STORAGE
from uops.backends.contract import Backend, Capabilities, Inputs, Missing
from uops.backends.subjects.host import Array, HostValue
from uops.backends.subjects.library import FUNCTION_OPS, Library, Value
from uops.backends.subjects.probe import list_probes
from uops.backends.subjects.walk import FORMS, GraphRun, Scope
from uops.spec.errors import Unsupported
from uops.spec.ir import dtypes as dt
from uops.spec.ir.dtypes import DType
from uops.spec.ir.node import UOp
from uops.spec.ir.ops import ALU, BINARY, Op
from uops.spec.result import Result
from uops.spec.rows.optional import OPTIONAL, find_optional_function, list_nodes_outside_optional_bodies
from uops.spec.rows.rows import ROWS

#: The most programs of which a compiled form is kept, for further calls.
MOST_PROGRAMS = 8


class Evaluator(Library, Backend):
    """A library under test. A subclass is a table of its functions, in the way that its users would write them."""

    #: The extra that installs the library, and the distributions whose versions decide results.
    extra: ClassVar[str]
    distributions: ClassVar[tuple[str, ...]]
    #: Rows that the library lacks by our reading of its documents.
    lacks: ClassVar[tuple[Missing, ...]] = ()
    #: Traits of the library (`uops.backends.contract.TRAITS`), by its documents or by design.
    traits: ClassVar[tuple[str, ...]] = ()
    #: True if the library lacks functions for some dtypes, which only asking it tells.
    is_probed: ClassVar[bool] = False
    #: Attribute that holds a module -> the module's name in a script (`uops.backends.subjects.scripts`).
    recorded_modules: ClassVar[Mapping[str, str]] = {}
    #: The lines by which a script imports these modules and sets them up.
    script_imports: ClassVar[tuple[str, ...]] = ()
    #: The expression of the compiled function `{}` in a script, or "" for a library that evaluates eagerly.
    script_wrapper: ClassVar[str] = ""
    #: False if the library is asked whole graphs alone.
    has_eager_mode: ClassVar[bool] = True

    def __init__(self) -> None:
        super().__init__()
        self._programs: dict[tuple[Any, ...], Program] = {}

    def version(self) -> str:
        """Return the versions of the library and Python."""
        return ", ".join([*(f"{d} {version(d)}" for d in self.distributions), f"Python {platform.python_version()}"])

    def capabilities(self) -> Capabilities:
        """Declare the dtypes of the library, and the rows that it lacks."""
        return self._declared_and_probed_capabilities

    def run(self, graph: UOp, inputs: Inputs) -> Result:
        """Evaluate a graph with the library. Raises Unsupported, and any exception of the library."""
        self._require_declared_ops_and_dtypes(graph)
        try:
            return self._evaluate(graph, inputs)
        except Exception as e:
            if isinstance(e, Unsupported) or not self.is_refusal(e):
                raise
            raise Unsupported(_describe_refusal(e), self.name) from e

    @cached_property
    def _declared_and_probed_capabilities(self) -> Capabilities:
        missing = [
            *self.lacks,
            Missing("Movement/Replicated", "*", f"{self.name} has no op that checks copies to be equal"),
            *(Missing(row, "*", f"{self.name} has no such function") for row in self._list_rows_without_function()),
        ]
        for d in self.dtypes if self.is_probed else ():
            declared = Capabilities(tuple(self.dtypes), tuple(missing))
            for rows, graph in list_probes(d):
                if declared.missing(rows[0], d) is None and (reason := self._run_on_ones_and_describe_refusal(graph)):
                    missing += [Missing(row, d.name, reason) for row in rows]
        return Capabilities(tuple(self.dtypes), tuple(missing), traits=self.traits)

    def _list_rows_without_function(self) -> list[str]:
        rows = [ROWS[op].id for op in FUNCTION_OPS if op not in self.functions]
        return [*rows, *(f.row for f in OPTIONAL.values() if not self.has_optional(f))]

    def _run_on_ones_and_describe_refusal(self, graph: UOp) -> str | None:
        """Return in the library's words why it refuses a program, or None."""
        nodes = collect_caller_input_nodes(graph)
        inputs = {k: np.ones(u.shape, STORAGE[u.dtype]) for k, u in nodes.items()}
        try:
            self._require_dtypes(list_nodes_outside_optional_bodies(graph))
            values = {k: self.import_array(a, nodes[k].dtype) for k, a in inputs.items()}
            Program(self, graph, {}, is_compiled=not self.has_eager_mode)(values)
        except Exception as e:
            return _describe_refusal(e) if self.is_refusal(e) else None  # the suite judges all other errors
        return None

    def _require_declared_ops_and_dtypes(self, graph: UOp) -> None:
        """Raise Unsupported for an op or dtype that the library lacks, before anything is evaluated."""
        nodes = list_nodes_outside_optional_bodies(graph)
        self._require_dtypes(nodes)
        for u in nodes:
            if u.op not in FORMS:
                raise Unsupported(f"{u.op.name} (the adapter has no form for it)", self.name)
            d = u.lhs.dtype if u.op in BINARY else u.dtype
            if u.op in ALU and d is not dt.index:
                self.require_function(u.op, d)
            elif u.op is Op.FUNCTION and (function := find_optional_function(u)) is not None:
                self._require_row(function.row, u.arguments[0].dtype)

    def require_function(self, op: Op, dtype: DType) -> None:
        """Raise Unsupported if a row is declared to be missing."""
        self._require_row(ROWS[op].id, dtype)

    def _require_row(self, row: str, dtype: DType) -> None:
        missing = self._declared_and_probed_capabilities.missing(row, dtype)
        if missing is not None:
            raise Unsupported(f"{missing.row} of {dtype}: {missing.reason}", self.name)

    def _require_dtypes(self, nodes: Sequence[UOp]) -> None:
        absent = next((u.dtype for u in nodes if u.dtype in dt.STORABLE and u.dtype not in self.dtypes), None)
        if absent is not None:
            raise Unsupported(f"dtype {absent}", self.name)

    def _evaluate(self, graph: UOp, inputs: Inputs) -> Result:
        nodes = collect_caller_input_nodes(graph)
        variables = {k: int(inputs[k]) for k, u in nodes.items() if is_variable(u)}
        key = (graph, *variables.items())
        program = self._programs.get(key)
        if program is None:
            if len(self._programs) >= MOST_PROGRAMS:
                self._programs.clear()
            program = self._programs[key] = Program(self, graph, variables)
        arrays = {
            k: self._import_input_with_index_as_int64(k, u, inputs[k])
            for k, u in nodes.items()
            if k in inputs and not is_variable(u)
        }
        return program(arrays)

    def _import_input_with_index_as_int64(self, key: str, u: UOp, array: Any) -> Value:
        d = dt.int64 if u.dtype is dt.index else u.dtype
        if u.dtype is dt.index and np.asarray(array).dtype == object:
            raise Unsupported(f"{key}: index values beyond int64", self.name)
        return self.import_array(np.array(array, STORAGE[d], order="C"), d)


class Program:
    """A graph with values for its variables, as one function of the library."""

    def __init__(self, library: Evaluator, graph: UOp, variables: Mapping[str, int], *, is_compiled: bool = True) -> None:
        self._library, self._graph, self._variables = library, graph, variables
        self._host_values: dict[int, Array] = {}
        self._written: list[tuple[str, DType]] = []
        self._function = (
            library.compile(self._evaluate_and_note_writes_and_constant_outputs)
            if is_compiled
            else self._evaluate_and_note_writes_and_constant_outputs
        )

    def __call__(self, inputs: dict[str, Value]) -> Result:
        """Return the result for the inputs' values."""
        export, value_nodes = self._library.export_array, nonvoid_root_items(self._graph)
        outputs = iter(self._function(inputs))
        values = tuple(
            self._host_values[k] if k in self._host_values else export(next(outputs), u.dtype.storage)
            for k, u in enumerate(value_nodes)
        )
        return Result(values, {key: export(next(outputs), d) for key, d in self._written})

    def _evaluate_and_note_writes_and_constant_outputs(self, inputs: dict[str, Value]) -> tuple[Value, ...]:
        """Evaluate the graph; note which memory it writes, and which values depend on no data."""
        run = GraphRun(self._library, self._variables, inputs)
        scope, outputs = Scope(run), []
        root = self._graph
        body = scope.evaluate(root)
        if root.op is Op.FUNCTION:
            scope, root = body, root.body
            scope.evaluate(root)
        for k, u in enumerate(nonvoid_root_items(self._graph)):
            cell = scope.cells[u]
            if isinstance(cell, HostValue):
                self._host_values[k] = _convert_to_int64_or_keep_objects(cell.array) if u.dtype is dt.index else cell.array
            else:
                outputs.append(scope.value(u))
        written = run.list_written_memory()
        self._written = [(key, m.node.dtype) for key, m in written]
        return (*outputs, *(m.contents for _, m in written))


def _describe_refusal(error: Exception) -> str:
    return f"{type(error).__name__}: {error}".splitlines()[0][:200]


def _convert_to_int64_or_keep_objects(array: Array) -> Array:
    """Return index values as int64 where they fit, as the contract has them (R08)."""
    try:
        return array.astype(np.int64)
    except OverflowError:
        return array
