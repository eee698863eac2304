"""Registered meanings of target instructions, templates and functions.

An Ins, a Custom or a CustomFunction names something that only a backend knows. `register` gives a name a meaning, and the
interpreter then runs it. Without one, running it is a Trap. Spec: Codegen/Ins, Custom, CustomFunction.

The meaning of an Ins or Custom takes the values of its sources and returns the node's value. Each value is an array, or for a
reference an object with `load()` and `store(value)`. The meaning of a CustomFunction takes the arguments of its Call: flat
arrays, and ints for variables. It returns the new contents of those that the Call writes, in the order of the arguments: a
tuple, or one array.
`standard_meanings` has those that are registered from the start. Samples of others:

    register(Op.INS, "v_add_f32", lambda a, b: a + b)
    register(Op.INS, "v_max_i32", np.maximum)
    register(Op.CUSTOM, "({0} + {1})", lambda a, b: a + b)
    register(Op.CUSTOM, "max({0}, {1})", np.maximum)
    register(Op.CUSTOM_FUNCTION, "fill_zero", lambda out: np.zeros_like(out))
    register(Op.CUSTOM_FUNCTION, "copy", lambda out, source: source)
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from uops.interp.standard_meanings import STANDARD_MEANINGS
from uops.interp.tensor.storage import check_bool
from uops.spec.errors import SpecError, Trap
from uops.spec.ir.ops import Op
from uops.spec.untrusted import escape_to_one_line

Meaning = Callable[..., Any]
#: The ops that take a registered meaning.
OPAQUE_OPS = frozenset({Op.INS, Op.CUSTOM, Op.CUSTOMI, Op.CUSTOM_FUNCTION})
_meanings: dict[tuple[Op, str], Meaning] = dict(STANDARD_MEANINGS)


def register(kind: Op, name: str, meaning: Meaning | None) -> None:
    """Register the meaning of `name`, or withdraw it with None; a later registration replaces an earlier one.

    `name` is the mnemonic of an Ins, the template of a Custom or CUSTOMI, or the name of a CustomFunction. Raises SpecError for
    another op.
    """
    if kind not in OPAQUE_OPS:
        raise SpecError(f"{kind.name} is not opaque: only {', '.join(sorted(k.name for k in OPAQUE_OPS))} can be given a meaning")
    if meaning is None:
        _meanings.pop((kind, name), None)
    else:
        _meanings[kind, name] = meaning


@contextmanager
def use_meanings(meanings: Mapping[tuple[Op, str], Meaning]) -> Iterator[None]:
    """Register meanings inside the block; what was registered before is registered again afterwards."""
    before = {key: _meanings.get(key) for key in meanings}
    try:
        for (kind, name), meaning in meanings.items():
            register(kind, name, meaning)
        yield
    finally:
        for (kind, name), previous in before.items():
            if kind in OPAQUE_OPS:
                register(kind, name, previous)


def find_meaning(kind: Op, name: str) -> Meaning | None:
    """Return the registered meaning of `name`, or None."""
    return _meanings.get((kind, name))


def require_meaning(kind: Op, name: str) -> Meaning:
    """Return the registered meaning of `name`. Raises Trap where there is none."""
    registered = find_meaning(kind, name)
    if registered is None:
        raise Trap(f"Opaque({escape_to_one_line(name)}): no meaning is registered for this {kind.name}")
    return registered


def call_custom_function(name: str, arguments: Sequence[Any], num_written: int) -> tuple[Any, ...]:
    """Return the arrays that CustomFunction `name` gives for the arguments that its Call writes.

    Raises SpecError if they are not `num_written` arrays (R63: the Call declares which arguments it writes), and Trap for a bool
    byte other than 0 and 1 (R24, bool).
    """
    returned = require_meaning(Op.CUSTOM_FUNCTION, name)(*arguments)
    results = returned if isinstance(returned, tuple) else (returned,)
    if len(results) != num_written:
        raise SpecError(
            f"CustomFunction {escape_to_one_line(name)} gives {len(results)} arrays, its Call writes {num_written} (R63)"
        )
    for result in results:
        if isinstance(result, np.ndarray) and result.dtype == np.bool_:
            check_bool(result, f"what CustomFunction {escape_to_one_line(name)} gives")
    return results
