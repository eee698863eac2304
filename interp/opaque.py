"""What instructions, templates and functions of a target mean, as far as somebody said so.

An Ins, a Custom or a CustomFunction names something that only a backend knows. `register` gives a name a meaning, and the
interpreter then runs it; without one a run of it is a Trap. Spec: Codegen/Ins, Custom, CustomFunction.

The meaning of an Ins or Custom takes the values of its sources, each an array, or for a reference a `Place` with `load()` and
`store(value)`, and returns the value. The meaning of a CustomFunction takes the arguments of its Call, flat arrays, and returns
the new contents of those that the Call writes, in order: a tuple, or one array. Samples, none of them registered:

    register(Op.INS, "v_add_f32", lambda a, b: a + b)
    register(Op.INS, "v_max_i32", np.maximum)
    register(Op.CUSTOM, "({0} + {1})", lambda a, b: a + b)
    register(Op.CUSTOM, "max({0}, {1})", np.maximum)
    register(Op.CUSTOM_FUNCTION, "fill_zero", lambda out: np.zeros_like(out))
    register(Op.CUSTOM_FUNCTION, "copy", lambda out, source: source)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from uops.spec.errors import SpecError, Trap
from uops.spec.ir.ops import Op
from uops.spec.untrusted import quote_name

Meaning = Callable[..., Any]
KINDS = frozenset({Op.INS, Op.CUSTOM, Op.CUSTOMI, Op.CUSTOM_FUNCTION})
_meanings: dict[tuple[Op, str], Meaning] = {}


def register(kind: Op, name: str, meaning: Meaning | None) -> None:
    """Say what `name` means: the mnemonic of an Ins, the template of a Custom or CUSTOMI, the name of a CustomFunction. A later
    registration replaces an earlier one; None withdraws it."""
    if kind not in KINDS:
        raise SpecError(f"{kind.name} is not opaque: only {', '.join(sorted(k.name for k in KINDS))} can be given a meaning")
    if meaning is None:
        _meanings.pop((kind, name), None)
    else:
        _meanings[kind, name] = meaning


def meaning(kind: Op, name: str) -> Meaning | None:
    """What was registered, or None."""
    return _meanings.get((kind, name))


def known(kind: Op, name: str) -> Meaning:
    """What was registered; a Trap where nothing was."""
    found = meaning(kind, name)
    if found is None:
        raise Trap(f"Opaque({quote_name(name)}): no meaning is registered for this {kind.name}")
    return found


def call(name: str, contents: Sequence[Any], written: int) -> tuple[Any, ...]:
    """The arrays that CustomFunction `name` gives for the arguments that its Call writes, of which there are `written`."""
    found = known(Op.CUSTOM_FUNCTION, name)(*contents)
    results = found if isinstance(found, tuple) else (found,)
    if len(results) != written:
        raise SpecError(f"CustomFunction {quote_name(name)} gives {len(results)} arrays, its Call writes {written} (R63)")
    return results
