"""`jit`: a Python function of Tensors, traced and compiled once for each structure of its arguments.

A call with known structure builds no graph: it passes the arguments' arrays to the compiled program and wraps the arrays that come
back. The structure is that of the containers, the shape and dtype of each Tensor, and the value of everything else.

A function is traced as `@function` traces it. It may not realize, assign to an argument, or look at values. A Tensor that it
captures is a constant from the first call on; what changes has to be an argument. Where a derivative may be asked for (inside of
`uops.grad`, or of arguments with `requires_grad`), a call builds the graph, as if there were no `jit`.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Sequence
from typing import Any, Generic, ParamSpec, TypeVar, cast

import numpy as np

from uops.compiler.ir.devices import HOST
from uops.compiler.runtime.program import numpy_dtype
from uops.compiler.tensor import history, realize, storage
from uops.compiler.tensor.dtypes import as_dtype
from uops.compiler.tensor.faults import fault, format_for_error
from uops.compiler.tensor.specialized_calls import (
    DECLINED,
    SpecializedCall,
    decline_call,
    describe_constant,
    generate_call_if_equality_tells_constants_apart,
)
from uops.compiler.tensor.tensor import Tensor
from uops.compiler.tensor.trace import collect_tensors_with_repeats, map_tensors, open_container
from uops.spec.errors import SpecTypeError, SpecValueError
from uops.spec.ir import build as B
from uops.spec.ir.node import UOp
from uops.spec.ir.ops import Op

#: Ops of nodes that may be data without a computation.
_LEAVES = frozenset({Op.BUFFER, Op.RESHAPE})
P = ParamSpec("P")
R = TypeVar("R")


class CompiledCall:
    """A program for one structure of arguments, which gives what the traced function gave, on other arrays."""

    __slots__ = (
        "_arguments", "_captured", "_checks", "_native", "_outputs", "_program", "_result", "_value_count",
        "_written_count", "specialized",
    )  # fmt: skip

    def __init__(self, traced: realize.TracedProgram, outputs: tuple[UOp, ...], result: Any) -> None:
        """Take the program, the nodes of the results, and what the function returned when it was traced, which no caller has."""
        self._program, self._result, self._outputs, self._checks = traced.program, result, outputs, traced.checks
        self._native: Any = getattr(traced.program, "function", None)
        keys: tuple[str, ...] = getattr(traced.program, "keys", ())
        self._captured = dict(traced.captured)
        #: For each argument of the native function: the number of the array, the captured array, or None for a Buffer's contents.
        self._arguments = [traced.captured.get(k, int(k[1:]) if k.startswith("p") else None) for k in keys]
        self._written_count = len(getattr(traced.program, "written_keys", ()))
        self._value_count = len(outputs) + len(traced.checks)
        #: The same call as one generated function, where there can be one.
        self.specialized: SpecializedCall | None = None

    def call(self, arrays: list[storage.Array]) -> Any:
        """Return the result for the arrays of the arguments. Raises SpecIndexError for an index out of range."""
        values = self._run_program_for_values_and_check_numbers(arrays)
        if self._checks:
            for check, number in zip(self._checks, values[len(self._outputs) :], strict=True):
                check.raise_if_greatest_offset_outside(number)
        arrays_by_node = {u: np.asarray(v).reshape(u.shape) for u, v in zip(self._outputs, values)}
        leaves = {u: storage.make_computed_leaf(a, u.dtype, u.shape) for u, a in arrays_by_node.items()}

        def make_realized(t: Tensor) -> Tensor:
            made = Tensor.of(leaves[t.uop])
            made._array = arrays_by_node[t.uop]
            return made

        return map_tensors(self._result, make_realized)

    def _run_program_for_values_and_check_numbers(self, arrays: list[storage.Array]) -> Sequence[Any]:
        """Return the values of the program: by its native function where it has one, which gives the Buffers it writes too."""
        if self._native is None:
            given = {f"p{k}": a for k, a in enumerate(arrays)}
            return self._program(given | self._captured).values
        values = self._native(*[arrays[a] if a.__class__ is int else a for a in self._arguments])
        return values[: self._value_count] if values.__class__ is tuple else (values,)

    def specialize_if_native_without_checks(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Set `specialized` for arguments with the structure of these, unless the call checks indices or is not native."""
        is_native = getattr(self._program, "has_native_function", False)
        if is_native and not self._checks and all(as_dtype(numpy_dtype(u.dtype.storage)) is u.dtype for u in self._outputs):
            self.specialized = generate_call_if_equality_tells_constants_apart(
                self._native, self._arguments, (args, kwargs), self._outputs, self._written_count, self._result
            )


class JitFunction(Generic[P, R]):
    """The compiled calls of a function: one for each structure of its arguments, per thread and backend."""

    def __init__(self, f: Callable[P, R]) -> None:
        self.function = f
        self._local = threading.local()
        #: The last call again, if the arguments have the same structure.
        self.again: SpecializedCall = decline_call

    def _run_compiled_unless_traced_or_differentiated(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> R:
        """Return what the function returns for these arguments. Its Tensors are realized."""
        tensors: list[Tensor] = []
        structure = _describe_structure(args, tensors), _describe_structure(kwargs, tensors) if kwargs else None
        if realize.is_tracing() or history.is_differentiating() or history.any_needs_history(tensors):
            return self.function(*args, **kwargs)
        key = structure, realize.compilation_settings()
        compiled: dict[Any, CompiledCall] = self._local.__dict__.setdefault("compiled", {})
        entry = compiled.get(key)
        if entry is None:
            entry = compiled[key] = self._compile(args, kwargs)
            entry.specialize_if_native_without_checks(args, kwargs)
        result = cast(R, entry.call([_get_array(t) for t in tensors]))
        self.again = entry.specialized or decline_call
        return result

    def _compile(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> CompiledCall:
        """Trace the function for arguments like these, and compile it."""
        name = getattr(self.function, "__name__", "function")
        stand_ins: list[Tensor] = []

        def stand_in(t: Tensor) -> Tensor:
            stand_ins.append(Tensor.of(storage.make_stand_in_for_function_input(t.uop)))
            return stand_ins[-1]

        traced_args, traced_kwargs = map_tensors((args, kwargs), stand_in)
        before = [t.uop for t in stand_ins]
        with realize.forbid_realization(name):
            result = self.function(*traced_args, **traced_kwargs)
        if any(t.uop is not u for t, u in zip(stand_ins, before, strict=True)):
            raise SpecValueError(f"jit of {name}: expected no assignment to an argument; return the new value instead")
        outputs = tuple(dict.fromkeys(t.uop for t in collect_tensors_with_repeats(result)))
        if not outputs:
            raise SpecTypeError(f"jit of {name}: expected a function that returns a Tensor or several, got none")
        params = {history.skip_reshapes(u): B.param(k, u.shape, u.dtype) for k, u in enumerate(before)}
        result = map_tensors(result, lambda t: Tensor.of(t.uop))  # the function's own containers and captured Tensors may change
        return CompiledCall(realize.compile_with_inputs(outputs, params), outputs, result)


def jit(f: Callable[P, R]) -> Callable[P, R]:
    """Return `f`, compiled once for each structure of its arguments (see the module).

    A call raises SpecError if `f` realizes, assigns to an argument or returns no Tensor. Arguments are Tensors on the host,
    containers, and hashable values; anything else raises SpecTypeError.
    """
    compiled = JitFunction(f)

    @functools.wraps(f)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:  # a function, whose call costs less than that of an object
        result: Any = compiled.again(args, kwargs)
        return compiled._run_compiled_unless_traced_or_differentiated(args, kwargs) if result is DECLINED else result

    return call


def _get_array(t: Tensor) -> storage.Array:
    """Return the array of a Tensor, realized if it has none; data is read without a look at what was realized."""
    array = t._array
    if array is None:
        data = storage.data_of(t.uop) if t.uop.op in _LEAVES else None
        array = t._realize_array() if data is None else data.reshape(t.uop.shape)
        if t.uop.op in _LEAVES:
            t._array = array
    return array


def _describe_structure(value: Any, tensors: list[Tensor]) -> Any:
    """Return what a compiled program depends on, as a hashable value, and append the Tensors in order to `tensors`."""
    if isinstance(value, Tensor):  # of a subclass, too: the function is traced with a Tensor in its place
        tensors.append(value)
        u = value.uop
        if (u.device or HOST) != HOST:
            raise fault("jit", None, f"expected Tensors on the host, got one on {format_for_error(u.device)}", SpecTypeError)
        return u.shape, u.dtype
    container = open_container(value)
    if container is not None:
        return type(value), describe_constant(container.keys), *[_describe_structure(v, tensors) for v in container.parts]
    try:
        hash(value)
    except TypeError:
        raise fault("jit", None, f"expected a Tensor or a hashable value, got {format_for_error(value)}", SpecTypeError) from None
    return describe_constant(value)
