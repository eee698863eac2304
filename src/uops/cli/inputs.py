"""The inputs of a program: checked, where they were given, and seeded random ones for a program that came without.

Both are judged here, before any backend sees them, so that a wrong input is one message and one exit status for all of them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from uops.backends.answer import is_variable, leaves
from uops.backends.arrays import STORAGE
from uops.backends.npz import Inputs, MemberHeader
from uops.backends.testing.values import array
from uops.fuzz.generate.draw import SeededDraw
from uops.fuzz.reduce.corpus import extent
from uops.spec.errors import SpecError, Trap
from uops.spec.ir import dtypes as dt
from uops.spec.ir.dtypes import Kind
from uops.spec.ir.node import UOp
from uops.spec.ir.ops import Op

#: Greatest value that a variable is given, if its bounds allow one so small: it may be the size of an array.
SMALL = 16
#: Greatest number of elements that are made up for one input.
MOST = 1 << 24


def random_inputs(root: UOp, seed: int) -> dict[str, Any]:
    """An array for every free Param and GLOBAL Buffer of `root` and a value for every variable; a function of `seed` alone.

    Floats are standard normal, integers small. Raises SpecError for an input that would be too large to make up.
    """
    draw = SeededDraw(seed)
    open_ = _sorted(root)
    inputs: dict[str, Any] = {key: _value(u, draw) for key, u in open_.items() if is_variable(u)}
    for key, u in open_.items():
        if key not in inputs:
            inputs[key] = array(draw, u.dtype, _small(key, u, inputs), "normal" if u.dtype.is_float else "small")
    return inputs


def checked(root: UOp, given: Mapping[str, Any]) -> dict[str, Any]:
    """`given` as every backend takes it: index values in int64 where all fit, variables as ints.

    Raises SpecError for a key that the program does not have, a Param or variable without a value, a wrong dtype or shape; Trap
    for a variable outside of its bounds (R48) and a bool byte other than 0 and 1 (R24).
    """
    known = _sorted(root)
    unknown = sorted(given.keys() - known.keys())
    if unknown:
        raise SpecError(f"input {unknown[0]!r} names nothing in the program; it has {', '.join(known) or 'no inputs'}")
    found: dict[str, Any] = {key: _variable(key, u, given) for key, u in known.items() if is_variable(u)}
    for key, u in known.items():
        if key not in found and (u.op is Op.PARAM or key in given):
            found[key] = _array(key, u, tuple(extent(n, found) for n in u.shape), given)
    return found


def _variable(key: str, u: UOp, given: Mapping[str, Any]) -> int:
    if key not in given:
        raise SpecError(f"input {key!r} is missing: it needs an int")
    dtype, shape = _header_of(key, given)
    if math.prod(shape) != 1 or dtype.kind not in "iuO":
        raise SpecError(f"input {key!r} needs an int, got {dtype} of shape {shape}")
    value, (lo, hi) = int(np.asarray(given[key]).reshape(-1)[0]), u.arg.bounds
    if not lo <= value <= hi:
        raise Trap(f"input {key!r} is {value}, outside of its bounds [{lo}, {hi}] (R48)")
    return value


def _array(key: str, u: UOp, shape: tuple[int, ...], given: Mapping[str, Any]) -> Any:
    wanted = STORAGE[u.dtype]
    if key not in given:
        raise SpecError(f"input {key!r} is missing: it needs {wanted} of shape {shape}")
    dtype, got = _header_of(key, given)
    fits = dtype.kind in "iuO" if u.dtype is dt.index else dtype == wanted
    if not fits or got != shape:
        raise SpecError(f"input {key!r} needs {wanted} of shape {shape}, got {dtype} of shape {got}")
    a = np.asarray(given[key])
    if u.dtype is dt.index:
        return _whole(a)
    if u.dtype.kind is Kind.BOOL and a.size and a.view(np.uint8).max() > 1:
        raise Trap(f"input {key!r} has a bool byte other than 0 and 1 (R24)")
    return a


def _header_of(key: str, given: Mapping[str, Any]) -> MemberHeader:
    """The dtype and shape of an input; of one in a file, before it is read, as few bytes may declare a large array."""
    if isinstance(given, Inputs):
        return given.header(key)
    a = np.asarray(given[key])
    return MemberHeader(a.dtype, a.shape)


def _whole(a: Any) -> Any:
    """Integers in int64 where all of them fit, else as Python ints (R08)."""
    try:
        return a.astype(object).astype(np.int64)
    except OverflowError:
        return a.astype(object)


def _sorted(root: UOp) -> dict[str, UOp]:
    """Variables, which the shapes of the others may need, then Params and Buffers by number."""
    return dict(sorted(leaves(root).items(), key=lambda item: (not is_variable(item[1]), _number(item[1]), item[0])))


def _number(u: UOp) -> int:
    return -1 if is_variable(u) else int(u.arg.unique if u.op is Op.BUFFER else u.arg.slot)


def _value(u: UOp, draw: SeededDraw) -> int:
    lo, hi = u.arg.bounds
    return draw.integer(lo, min(hi, max(lo, SMALL)))


def _small(key: str, u: UOp, variables: Mapping[str, Any]) -> tuple[int, ...]:
    """The extents of a leaf that is small enough to be made up."""
    shape = tuple(extent(n, variables) for n in u.shape)
    if math.prod(shape) > MOST:
        raise SpecError(f"{key} has shape {shape}, too large to make up; give it with --inputs")
    return shape
