"""Inputs for a program that came without: seeded random arrays for whatever it leaves open."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from uops.fuzz.draw import SeededDraw
from uops.fuzz.values import array
from uops.spec import build as b
from uops.spec.args import AddrSpace
from uops.spec.errors import SpecError
from uops.spec.node import UOp, substitute
from uops.spec.ops import Op
from uops.spec.scope import BODIED

#: Greatest value that a variable is given, if its bounds allow one so small: it may be the size of an array.
SMALL = 16
#: Greatest number of elements that are made up for one input.
MOST = 1 << 24


def random_inputs(root: UOp, seed: int) -> dict[str, Any]:
    """An array for every free Param and GLOBAL Buffer of `root` and a value for every variable; a function of `seed` alone.

    Floats are standard normal, integers small. Raises SpecError for an input that would be too large to make up.
    """
    draw = SeededDraw(seed)
    leaves = sorted(_free(root), key=_key)
    variables = {u: _value(u, draw) for u in leaves if _is_variable(u)}
    consts = {u: b.const(v, u.dtype) for u, v in variables.items()}
    inputs: dict[str, Any] = {u.arg.name: v for u, v in variables.items()}
    for u in leaves:
        key = _key(u)[1]
        if key not in inputs:
            inputs[key] = array(draw, u.dtype, _shape(key, substitute(u, consts)), "normal" if u.dtype.is_float else "small")
    return inputs


def _free(root: UOp) -> Iterator[UOp]:
    """Params, variables and Buffers outside of the bodies of Functions and Calls."""
    seen, stack = {root}, [root]
    while stack:
        u = stack.pop()
        if u.op is Op.PARAM or (u.op is Op.BUFFER and u.arg.addrspace is AddrSpace.GLOBAL):
            yield u
        for s in u.src[1:] if u.op in BODIED else u.src:
            if s not in seen:
                seen.add(s)
                stack.append(s)


def _is_variable(u: UOp) -> bool:
    return u.op is Op.PARAM and u.arg.slot is None


def _key(u: UOp) -> tuple[int, str]:
    """A number to sort by, and the input's name."""
    if u.op is Op.BUFFER:
        return (u.arg.unique, f"b{u.arg.unique}")
    return (-1, u.arg.name or "") if _is_variable(u) else (u.arg.slot, f"p{u.arg.slot}")


def _value(u: UOp, draw: SeededDraw) -> int:
    lo, hi = u.arg.bounds
    return draw.integer(lo, min(hi, max(lo, SMALL)))


def _shape(key: str, u: UOp) -> tuple[int, ...]:
    """Extents of a leaf whose variables have been replaced by their values."""
    dims, count = [], 1
    for n in u.shape:
        least = n if isinstance(n, int) else n.min_max[0] if n.min_max else 0
        dims.append(int(least))
        count *= dims[-1]
    if count > MOST:
        raise SpecError(f"{key} has shape {tuple(dims)}, too large to make up; give it with --inputs")
    return tuple(dims)
