"""`uops run`: evaluate a program."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from uops.cli.common import (
    INTERP,
    backend_option,
    console,
    dialect_option,
    json_option,
    print_json,
    program_argument,
    require_backend,
)  # fmt: skip
from uops.spec.untrusted import quote_name

if TYPE_CHECKING:
    from uops.spec.ir.node import UOp
    from uops.spec.result import Result
    from uops.spec.verify.dialects import Dialect

#: Seconds that a backend may take.
TIMEOUT = 600.0


@click.command(short_help="Evaluate a .uops program on inputs.")
@program_argument()
@backend_option(default=INTERP, show_default=True, help="Who evaluates it; interp is the reference interpreter.")
@click.option(
    "--inputs", "-i", type=click.Path(exists=True, dir_okay=False), metavar="FILE.npz",
    help="Arrays named p<slot>, b<unique> and by variable. Without it they are random.",
)  # fmt: skip
@click.option("--seed", type=int, default=0, show_default=True, help="Seed of random inputs.")
@dialect_option(
    None,
    "What the program is written in; the interpreter takes all, a backend tensor.  [default: tensor, or what a reproducer has]",
)
@click.option("--schedule", type=int, help="Seed of an order for all that a kernel leaves unordered; for the interpreter.")
@click.option("--bits", is_flag=True, help="Show the bits of every float beside its value.")
@json_option()
def run(
    file: str, backend_name: str, inputs: str | None, seed: int, dialect: str | None, schedule: int | None, bits: bool,
    as_json: bool,
) -> None:  # fmt: skip
    """Evaluate a .uops program on given or random inputs.

    A file that holds inputs in comments (`; input p0: 1 2`), as reproducers of `uops fuzz` do, is run on those. Prints the values
    of its root and the contents of the buffers that it wrote.
    """
    from uops.backends import npz
    from uops.cli.inputs import checked, random_inputs
    from uops.fuzz.reduce.corpus import inputs_of
    from uops.spec.ir.text import parse_file
    from uops.spec.verify.dialects import Dialect
    from uops.spec.verify.verifier import verify

    root = parse_file(file)
    written = Dialect(dialect.lower()) if dialect else _dialect_of(Path(file))
    if backend_name != INTERP and (written is not Dialect.TENSOR or schedule is not None):
        called = quote_name(backend_name)
        raise click.UsageError(f"{called} takes programs of the tensor dialect, without a schedule: leave out --backend")
    verify(root, written)
    held = {} if inputs or not Path(file).is_file() else inputs_of(Path(file))  # a pipe was read to its end
    if held and written is Dialect.BESTIARY:
        given = held  # memory and variables of the second document, read as it says what they are
    else:
        given = checked(root, npz.Inputs(inputs) if inputs else held) if inputs or held else random_inputs(root, seed)
    result = evaluate(root, given, backend_name, schedule)
    if as_json:
        head = {"file": file, "backend": backend_name, "seed": None if inputs or held or not given else seed}
        buffers = {k: _json(v) for k, v in result.buffers.items()}
        print_json(head | {"values": [_json(v) for v in result.values], "buffers": buffers})
        return
    if not inputs and given:
        _show({f"input {k}": v for k, v in given.items()}, bits, "dim")
    _show(named(result), bits, "bold")


def _dialect_of(file: Path) -> Dialect:
    """That of the kind that a reproducer of `uops fuzz` names; of any other program, tensor."""
    from uops.fuzz.reduce.corpus import HEADER, text_of
    from uops.spec.verify.dialects import Dialect

    if not file.is_file() or not any(x.startswith(HEADER) for x in text_of(file).splitlines()):
        return Dialect.TENSOR
    from uops.fuzz.reduce.reproducer import dialect_of  # imports the compiler

    return dialect_of(file) or Dialect.TENSOR


def named(result: Result) -> dict[str, Any]:
    """The arrays of a result by what they are."""
    values = {"value" if len(result.values) == 1 else f"value {k}": v for k, v in enumerate(result.values)}
    return values | {f"buffer {k}": v for k, v in result.buffers.items()}


def evaluate(root: UOp, inputs: Mapping[str, Any], name: str, schedule: int | None = None) -> Result:
    """Run here on the interpreter, and on any other backend in a process of its own: it may crash."""
    if name == INTERP:
        from uops.interp import run as interpret

        return interpret(root, inputs, schedule=schedule)
    from uops.backends.answer import fault
    from uops.backends.worker.client import Case, Limits, Worker
    from uops.spec.errors import Trap, UopsError

    require_backend(name)
    with Worker(name, limits=Limits(timeout=TIMEOUT)) as worker:
        outcome = worker.run(Case(root, inputs))
    if outcome.status == "ok" and outcome.result is not None:
        if wrong := fault(root, inputs, outcome.result):
            raise click.ClickException(f"{quote_name(name)} gave a result of the wrong form: {wrong}")
        return outcome.result
    if outcome.status == "trap":
        raise Trap(outcome.message)
    if outcome.status == "unsupported":
        raise UopsError(outcome.message)
    raise click.ClickException(f"{quote_name(name)}: {outcome.status}: {outcome.message}")


# -------------------------------------------------------------------------------------------------------------- output


def _show(arrays: Mapping[str, Any], bits: bool, style: str) -> None:
    import numpy as np

    from uops.cli.texts import Text

    out = console()
    for name, value in arrays.items():
        if isinstance(value, int):
            out.print(Text.assemble((quote_name(name), style), f" = {value}"))
            continue
        a = np.asarray(value)
        out.print(Text.assemble((quote_name(name), style), f"  {a.dtype} {_shape(a)}"), soft_wrap=True)
        out.print(Text(_spelled(a, bits)), soft_wrap=True)


def _shape(a: Any) -> str:
    return f"({', '.join(map(str, a.shape))})"


def _spelled(a: Any, bits: bool) -> str:
    import numpy as np

    if bits and a.dtype.kind not in "biuO":
        digits = 2 * a.dtype.itemsize
        pairs = [f"{x} 0x{int(w):0{digits}x}" for x, w in zip(a.reshape(-1), _words(a).reshape(-1))]
        a = np.array([*pairs, None], object)[:-1].reshape(a.shape)
    return np.array2string(a, max_line_width=120, threshold=1000, formatter={"object": str} if a.dtype == object else None)


def _words(a: Any) -> Any:
    import numpy as np

    return np.ascontiguousarray(a).view(f"u{a.dtype.itemsize}").reshape(a.shape)


def _json(value: Any) -> dict[str, Any]:
    """Dtype, shape, the elements in row-major order, and for floats their bits, since JSON has neither NaN nor infinity."""
    import numpy as np

    a = np.asarray(value)
    entry: dict[str, Any] = {"dtype": "index" if a.dtype == object else a.dtype.name, "shape": list(a.shape)}
    if a.dtype.kind in "biuO":
        return entry | {"data": [v if isinstance(v, bool) else int(v) for v in a.reshape(-1).tolist()]}
    numbers = [float(v) for v in a.reshape(-1)]
    entry["data"] = [v if math.isfinite(v) else str(v) for v in numbers]
    return entry | {"bits": [f"0x{int(w):0{2 * a.dtype.itemsize}x}" for w in _words(a).reshape(-1)]}
