"""`uops run`: evaluate a program."""

from __future__ import annotations

import math
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from uops.cli.common import (
    INTERP,
    allow_native_option,
    backend_option,
    dialect_option,
    echo,
    json_option,
    make_console_that_escapes_controls,
    print_json,
    program_argument,
    read_and_verify_program_wrapping_kernel,
    require_locatable_backend,
)  # fmt: skip
from uops.spec.untrusted import escape_to_one_line

if TYPE_CHECKING:
    from uops.backends.conformance.judge import SegmentVerdict
    from uops.backends.conformance.model import Failure
    from uops.spec.ir.node import UOp
    from uops.spec.result import Result
    from uops.spec.verify.dialects import Dialect

#: Time limit for a backend, in seconds.
TIMEOUT = 600.0


@click.command(short_help="Evaluate a .uops program on inputs.")
@program_argument()
@backend_option(default=INTERP, show_default=True, help="Backend; interp is the reference interpreter.")
@click.option(
    "--inputs", "-i", type=click.Path(exists=True, dir_okay=False), metavar="FILE.npz",
    help="Arrays named p<slot>, b<unique>, or after a variable. Without it they are random.",
)  # fmt: skip
@click.option("--seed", type=int, default=0, show_default=True, help="Seed of random inputs.")
@dialect_option(
    None,
    "What the program is written in; a backend takes what its surfaces say.  [default: tensor, or what a reproducer has]",
)
@click.option("--schedule", type=int, help="Seed of an iteration order, where a kernel leaves it open; for the interpreter.")
@click.option("--bits", is_flag=True, help="Show the bits of every float beside its value.")
@click.option(
    "--judge",
    "judged",
    is_flag=True,
    help="Count the elements that are not allowed, and show the first; exit status 1 if there are any.",
)
@click.option(
    "--level", type=click.Choice(["strict", "core"]), default="strict", show_default=True, help="Level at which --judge judges."
)
@click.option(
    "--script",
    type=click.Path(dir_okay=False),
    help="With --judge: write a Python script that shows the first wrong element by the library alone, and run it.",
)
@allow_native_option()
@json_option()
@click.pass_context
def run(
    ctx: click.Context, file: str, backend_name: str, inputs: str | None, seed: int, dialect: str | None, schedule: int | None,
    bits: bool, judged: bool, level: str, script: str | None, allow_native: bool, as_json: bool,
) -> None:  # fmt: skip
    """Evaluate a .uops program on given or random inputs.

    A file with inputs in comments (`; input p0: 1 2`), such as a reproducer of `uops fuzz`, is run on those. Prints the values of
    its root and the contents of the buffers that it wrote.

    With --judge, the result is compared with what the specification allows. Wrong elements are grouped by cause.

    With --script, a script for the tracker of the library under test is written, if its adapter records calls. It imports no part
    of this package.
    """
    from uops.backends import npz
    from uops.cli.inputs import check_and_convert_inputs, random_inputs
    from uops.fuzz.reduce.corpus import read_inputs
    from uops.spec.verify.dialects import Dialect

    if script and not judged:
        raise click.UsageError("--script shows an element that --judge finds to be wrong: add --judge")
    written = Dialect(dialect.lower()) if dialect else _read_reproducer_dialect_or_tensor(Path(file))
    if backend_name != INTERP and schedule is not None:
        raise click.UsageError(f"--schedule draws an order in the interpreter, {escape_to_one_line(backend_name)} has its own")
    root = read_and_verify_program_wrapping_kernel(file, written, allow_native)
    embedded = {} if inputs or not Path(file).is_file() else read_inputs(Path(file))  # a pipe was read to its end
    if embedded and written is Dialect.BESTIARY:
        values = embedded  # memory and variables of the second document, read as it says what they are
    else:
        values = (
            check_and_convert_inputs(root, npz.InputFile(inputs) if inputs else embedded)
            if inputs or embedded
            else random_inputs(root, seed)
        )
    result = evaluate_on_backend(root, values, backend_name, schedule, written)
    verdicts = judge_program_result(root, values, result, level) if judged else []
    status = int(any(v.failed for v in verdicts))
    if script and status:
        _write_and_run_script(Path(script), backend_name, root, values, verdicts, level)
    if as_json:
        head = {"file": file, "backend": backend_name, "seed": None if inputs or embedded or not values else seed}
        buffers = {k: _array_to_json(v) for k, v in result.buffers.items()}
        judgement = {"judged": _verdicts_to_json(verdicts, level)} if judged else {}
        print_json(head | {"values": [_array_to_json(v) for v in result.values], "buffers": buffers} | judgement)
        ctx.exit(status)
    if not inputs and values:
        _print_arrays({f"input {k}": v for k, v in values.items()}, bits, "dim")
    _print_arrays(label_arrays(result), bits, "bold")
    if judged:
        _print_verdicts(verdicts, level)
    ctx.exit(status)


def _read_reproducer_dialect_or_tensor(file: Path) -> Dialect:
    """Return the dialect of a `uops fuzz` reproducer's kind; TENSOR for any other program."""
    from uops.fuzz.reduce.corpus import HEADER, read_program_text
    from uops.spec.verify.dialects import Dialect

    if not file.is_file() or not any(x.startswith(HEADER) for x in read_program_text(file).splitlines()):
        return Dialect.TENSOR
    from uops.fuzz.reduce.reproducer import read_dialect_or_none_without_header  # imports the compiler

    return read_dialect_or_none_without_header(file) or Dialect.TENSOR


def judge_program_result(root: UOp, inputs: Mapping[str, Any], result: Result, level: str) -> list[SegmentVerdict]:
    """Return a verdict per output of a program: its values, and the buffers that it writes.

    A TENSOR program is judged by allowed sets. One of another dialect has one result, which must be given bit by bit.
    """
    from uops.backends.conformance.causes.find import judge_and_explain
    from uops.backends.conformance.judge import Expectation
    from uops.backends.conformance.model import ConformanceLevel
    from uops.backends.contract import KERNEL_SURFACE, TENSOR_SURFACE
    from uops.spec.verify.dialects import Dialect
    from uops.spec.verify.infer import infer_tensor_kernel_or_bestiary_dialect

    is_tensor = infer_tensor_kernel_or_bestiary_dialect(root) is Dialect.TENSOR
    expected = Expectation.of_program(root, inputs, TENSOR_SURFACE if is_tensor else KERNEL_SURFACE)
    return judge_and_explain(expected, result, ConformanceLevel(level))


def _write_and_run_script(
    path: Path, backend_name: str, root: UOp, inputs: Mapping[str, Any], verdicts: Sequence[SegmentVerdict], level: str
) -> None:
    """Write the script of the first wrong element, run it, and print what it says to standard error."""
    from uops.backends.conformance.judge import Expectation
    from uops.backends.conformance.model import ConformanceLevel
    from uops.backends.subjects.scripts.script import NoScript, list_search_words, write_script_in_own_process
    from uops.spec.untrusted import write_text

    wrong = [(v.segment.output, f.element) for v in verdicts for f in v.failures]
    of_values = [(output, element) for output, element in wrong if isinstance(output, int) and element is not None]
    if not of_values:
        raise click.ClickException("no script: the failure is no wrong element of a value")
    output, element = min(of_values)
    allowed = Expectation.of_program(root, inputs).at(ConformanceLevel(level))[output].describe(element)
    try:
        text = write_script_in_own_process(backend_name, root, inputs, output, element, allowed, list_search_words(root))
    except NoScript as e:
        raise click.ClickException(f"no script: {e}") from e
    write_text(path, text)
    ran = subprocess.run([sys.executable, str(path)], capture_output=True, text=True, timeout=300, check=False)
    last = (ran.stdout.strip() or ran.stderr.strip() or "nothing").splitlines()[-1]
    shown = "shows it" if ran.returncode else "does not show it"
    echo(f"{path} {shown}, with status {ran.returncode}: {last}", err=True)


def _print_verdicts(verdicts: Sequence[SegmentVerdict], level: str) -> None:
    """Print the number of wrong elements, the first of them, and their causes."""
    from uops.backends.conformance.causes.find import describe_cause
    from uops.cli.texts import Text

    out = make_console_that_escapes_controls()
    elements, failed = sum(v.elements for v in verdicts), sum(v.failed for v in verdicts)
    if not failed:
        out.print(Text(f"judged at level {level}: all {elements:,} elements are allowed", "green"), soft_wrap=True)
        return
    out.print(Text(f"judged at level {level}: {failed:,} of {elements:,} elements are wrong", "bold red"), soft_wrap=True)
    for v in verdicts:
        for cause, count in v.causes.items():
            out.print(Text(f"  {count:,} of output {v.segment.output}: {describe_cause(cause)}"), soft_wrap=True)
        for f in v.failures:
            operands = f"{', '.join(f.operands)}: " if f.operands else ""
            detail = f"{operands}got {f.got}, allowed {f.allowed}" if f.got is not None else f.message
            out.print(Text(f"  element {f.element}: {detail}" if f.element is not None else f"  {detail}", "dim"), soft_wrap=True)


def _verdicts_to_json(verdicts: Sequence[SegmentVerdict], level: str) -> dict[str, Any]:
    outputs = [
        {
            "output": v.segment.output,
            "elements": v.elements,
            "wrong": v.failed,
            "causes": v.causes,
            "failures": [_failure_to_json(f) for f in v.failures],
        }
        for v in verdicts
    ]
    return {"level": level, "wrong": sum(v.failed for v in verdicts), "outputs": outputs}


def _failure_to_json(f: Failure) -> dict[str, Any]:
    return {"message": f.message, "element": f.element, "operands": list(f.operands), "got": f.got, "allowed": f.allowed}


def label_arrays(result: Result) -> dict[str, Any]:
    """Label the arrays of a result."""
    values = {"value" if len(result.values) == 1 else f"value {k}": v for k, v in enumerate(result.values)}
    return values | {f"buffer {k}": v for k, v in result.buffers.items()}


def evaluate_on_backend(
    root: UOp, inputs: Mapping[str, Any], backend_name: str, order_seed: int | None = None, dialect: Dialect | None = None
) -> Result:
    """Evaluate on the interpreter in this process, or on a backend in a process of its own, which may crash.

    Only the interpreter takes a schedule. A backend without the surface `kernel` takes TENSOR alone.
    """
    if backend_name == INTERP:
        from uops.interp import run as interpret

        return interpret(root, inputs, schedule=order_seed, dialect=dialect)
    from uops.backends.answer import find_result_form_mismatch
    from uops.backends.contract import KERNEL_SURFACE
    from uops.backends.worker.client import BackendWorker, Limits, WorkerCase, query_info_isolating_foreign_backend
    from uops.spec.errors import Trap, UopsError
    from uops.spec.verify.dialects import Dialect
    from uops.spec.verify.infer import infer_tensor_kernel_or_bestiary_dialect

    require_locatable_backend(backend_name)
    if infer_tensor_kernel_or_bestiary_dialect(root) is not Dialect.TENSOR and not query_info_isolating_foreign_backend(
        backend_name
    ).capabilities.can_be_asked(KERNEL_SURFACE):
        raise click.UsageError(f"{escape_to_one_line(backend_name)} takes programs of the tensor dialect alone")
    with BackendWorker(backend_name, limits=Limits(timeout=TIMEOUT)) as worker:
        outcome = worker.run(WorkerCase(root, inputs))
    if outcome.status == "ok" and outcome.result is not None:
        if mismatch := find_result_form_mismatch(root, inputs, outcome.result):
            raise click.ClickException(f"{escape_to_one_line(backend_name)} gave a result of the wrong form: {mismatch}")
        return outcome.result
    if outcome.status == "trap":
        raise Trap(outcome.message)
    if outcome.status == "unsupported":
        raise UopsError(outcome.message)
    raise click.ClickException(f"{escape_to_one_line(backend_name)}: {outcome.status}: {outcome.message}")


# -------------------------------------------------------------------------------------------------------------- output


def _print_arrays(arrays: Mapping[str, Any], show_bits: bool, style: str) -> None:
    import numpy as np

    from uops.cli.texts import Text

    out = make_console_that_escapes_controls()
    for name, value in arrays.items():
        if isinstance(value, int):
            out.print(Text.assemble((escape_to_one_line(name), style), f" = {value}"))
            continue
        a = np.asarray(value)
        out.print(Text.assemble((escape_to_one_line(name), style), f"  {a.dtype} {_format_shape(a)}"), soft_wrap=True)
        out.print(Text(_format_values_with_bits(a, show_bits)), soft_wrap=True)


def _format_shape(a: Any) -> str:
    return f"({', '.join(map(str, a.shape))})"


def _format_values_with_bits(a: Any, show_bits: bool) -> str:
    import numpy as np

    if show_bits and a.dtype.kind not in "biuO":
        digits = 2 * a.dtype.itemsize
        pairs = [f"{x} 0x{int(w):0{digits}x}" for x, w in zip(a.reshape(-1), _float_bit_words(a).reshape(-1))]
        a = np.array([*pairs, None], object)[:-1].reshape(a.shape)
    return np.array2string(a, max_line_width=120, threshold=1000, formatter={"object": str} if a.dtype == object else None)


def _float_bit_words(a: Any) -> Any:
    import numpy as np

    return np.ascontiguousarray(a).view(f"u{a.dtype.itemsize}").reshape(a.shape)


def _array_to_json(value: Any) -> dict[str, Any]:
    """Return dtype, shape, elements in row-major order, and the bits of floats, since JSON has neither NaN nor infinity."""
    import numpy as np

    a = np.asarray(value)
    entry: dict[str, Any] = {"dtype": "index" if a.dtype == object else a.dtype.name, "shape": list(a.shape)}
    if a.dtype.kind in "biuO":
        return entry | {"data": [v if isinstance(v, bool) else int(v) for v in a.reshape(-1).tolist()]}
    numbers = [float(v) for v in a.reshape(-1)]
    entry["data"] = [v if math.isfinite(v) else str(v) for v in numbers]
    return entry | {"bits": [f"0x{int(w):0{2 * a.dtype.itemsize}x}" for w in _float_bit_words(a).reshape(-1)]}
