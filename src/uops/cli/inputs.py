"""The inputs of a program: checks of given ones, and random ones from a seed.

Both happen before any backend runs, so a wrong input gives the same message and exit status for every backend.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Mapping
from typing import Any

import numpy as np

from uops.backends.answer import collect_caller_input_nodes, is_variable
from uops.backends.arrays import STORAGE
from uops.backends.npz import InputFile, MemberHeader
from uops.backends.testing.values import draw_array
from uops.fuzz.generate.draw import SeededDraw
from uops.fuzz.reduce.corpus import evaluate_extent
from uops.spec.errors import SpecError, Trap
from uops.spec.ir import dtypes as dt
from uops.spec.ir.dtypes import DTypeKind
from uops.spec.ir.node import UOp
from uops.spec.ir.ops import Op

#: Largest random value of a variable, if its bounds allow it: a variable may be the size of an array.
SMALL = 16
#: Largest number of elements of a random input.
MOST = 1 << 24


def random_inputs(root: UOp, seed: int) -> dict[str, Any]:
    """Draw an array for every free Param and GLOBAL Buffer of `root` and a value for every variable, from `seed` alone.

    Floats are standard normal, integers small. Raises SpecError for an input that would be too large.
    """
    draw = SeededDraw(seed)
    nodes = _list_input_nodes_variables_first(root)
    inputs: dict[str, Any] = {key: _draw_variable(u, draw) for key, u in nodes.items() if is_variable(u)}
    for key, u in nodes.items():
        if key not in inputs:
            inputs[key] = draw_array(
                draw, u.dtype, _evaluate_drawable_shape(key, u, inputs), "normal" if u.dtype.is_float else "small"
            )
    return inputs


def check_and_convert_inputs(root: UOp, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the given inputs in the form that backends take: index values in int64 where all fit, variables as ints.

    Raises SpecError for a key that the program lacks, a Param or variable without a value, and a wrong dtype or shape. Raises Trap
    for a variable outside its bounds (R48), and for a bool byte other than 0 and 1 (R24).
    """
    nodes = _list_input_nodes_variables_first(root)
    unknown = sorted(given.keys() - nodes.keys())
    if unknown:
        raise SpecError(f"the program has no input {unknown[0]!r}; it has {', '.join(nodes) or 'no inputs'}")
    checked: dict[str, Any] = {key: _to_checked_int(key, u, given) for key, u in nodes.items() if is_variable(u)}
    for key, u in nodes.items():
        if key not in checked and (u.op is Op.PARAM or key in given):
            checked[key] = _get_checked_array_with_index_as_int64(
                key, u, tuple(evaluate_extent(n, checked) for n in u.shape), given
            )
    return checked


def _to_checked_int(key: str, u: UOp, given: Mapping[str, Any]) -> int:
    if key not in given:
        raise SpecError(f"input {key!r} is missing: it needs an int")
    dtype, shape = _read_dtype_and_shape(key, given)
    if math.prod(shape) != 1 or dtype.kind not in "iuO":
        raise SpecError(f"input {key!r} needs an int, got {dtype} of shape {shape}")
    value: int = _to_python_ints(key, np.asarray(given[key])).item()
    lo, hi = u.arg.bounds
    if not lo <= value <= hi:
        raise Trap(f"input {key!r} is {value}, outside of its bounds [{lo}, {hi}] (R48)")
    return value


def _get_checked_array_with_index_as_int64(key: str, u: UOp, shape: tuple[int, ...], given: Mapping[str, Any]) -> Any:
    expected_dtype = STORAGE[u.dtype]
    if key not in given:
        raise SpecError(f"input {key!r} is missing: it needs {expected_dtype} of shape {shape}")
    dtype, got = _read_dtype_and_shape(key, given)
    dtype_matches = dtype.kind in "iuO" if u.dtype is dt.index else dtype == expected_dtype
    if not dtype_matches or got != shape:
        raise SpecError(f"input {key!r} needs {expected_dtype} of shape {shape}, got {dtype} of shape {got}")
    a = np.asarray(given[key])
    if u.dtype is dt.index:
        return _to_int64_if_all_fit(_to_python_ints(key, a))
    if u.dtype.kind is DTypeKind.BOOL and a.size and a.view(np.uint8).max() > 1:
        raise Trap(f"input {key!r} has a bool byte other than 0 and 1 (R24)")
    return a


def _read_dtype_and_shape(key: str, given: Mapping[str, Any]) -> MemberHeader:
    """Return the dtype and shape of an input; of one in a file before it is read, since few bytes may declare a large array."""
    if isinstance(given, InputFile):
        return given.decoded_header(key)
    a = np.asarray(given[key])
    return MemberHeader(a.dtype, a.shape)


def _to_python_ints(key: str, a: Any) -> Any:
    """Return integers as an array of Python ints. Raises SpecError for an object that is no integer."""
    ints = np.empty(a.size, object)
    try:
        ints[:] = list(map(operator.index, a.ravel().tolist()))
    except TypeError as e:
        raise SpecError(f"input {key!r} needs integers: {e}") from e
    return ints.reshape(a.shape)


def _to_int64_if_all_fit(ints: Any) -> Any:
    """Convert Python ints to int64 if all of them fit (R08)."""
    try:
        return ints.astype(np.int64)
    except OverflowError:
        return ints


def _list_input_nodes_variables_first(root: UOp) -> dict[str, UOp]:
    """Return variables first, since shapes depend on them, then Params and Buffers by number."""
    return dict(
        sorted(
            collect_caller_input_nodes(root).items(),
            key=lambda item: (not is_variable(item[1]), _buffer_or_slot_number(item[1]), item[0]),
        )
    )


def _buffer_or_slot_number(u: UOp) -> int:
    return -1 if is_variable(u) else int(u.arg.unique if u.op is Op.BUFFER else u.arg.slot)


def _draw_variable(u: UOp, draw: SeededDraw) -> int:
    lo, hi = u.arg.bounds
    return draw.integer(lo, min(hi, max(lo, SMALL)))


def _evaluate_drawable_shape(key: str, u: UOp, variables: Mapping[str, Any]) -> tuple[int, ...]:
    """Return the extents of an input. Raises SpecError if it is too large to draw."""
    shape = tuple(evaluate_extent(n, variables) for n in u.shape)
    if math.prod(shape) > MOST:
        raise SpecError(f"{key} has shape {shape}, too large for random values; give it with --inputs")
    return shape
