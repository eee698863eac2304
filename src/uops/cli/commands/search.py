"""`uops search`: time schedules of each kernel, and keep the fastest."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import click

from uops.cli.common import (
    INTERRUPTED,
    allow_native_option,
    backend_option,
    flush_output_and_ignore_broken_pipe,
    json_option,
    make_console_that_escapes_controls,
    parse_program,
    print_json,
    program_argument,
    send_heartbeat,
)
from uops.cli.foreign import isolate_foreign_backend, load_compiler_backend

if TYPE_CHECKING:
    from uops.compiler.passes.optimize.search.beam import Progress

Json = dict[str, Any]


@click.command(short_help="Time schedules of a program's kernels.")
@program_argument()
@backend_option(required=True, help="Backend whose target to time on.")
@click.option("--beam", type=click.IntRange(1), default=2, show_default=True, help="Number of states kept per step.")
@click.option("--seconds", type=click.IntRange(1), default=10, show_default=True, help="Time limit for one kernel, in seconds.")
@allow_native_option()
@json_option()
@isolate_foreign_backend
@click.pass_context
def search(ctx: click.Context, file: str, backend_name: str, beam: int, seconds: int, allow_native: bool, as_json: bool) -> None:
    """Search for the schedules of a .uops program's kernels by timing them.

    The results are kept on disk, for compilations with UOPS_BEAM set to the same number of states. Ctrl-C keeps the best so far and
    ends with status 130; the next search resumes from there.
    """
    from uops.compiler import Config, lower
    from uops.compiler.passes.optimize.search.beam import report_search_progress_to
    from uops.spec.verify.dialects import Dialect
    from uops.spec.verify.verifier import verify

    root = parse_program(file, allow_native)
    verify(root, Dialect.TENSOR)
    backend = load_compiler_backend(backend_name)
    finished: dict[str, Progress] = {}
    with SearchStatusLine(finished) as tell, report_search_progress_to(tell):
        lower(root, backend.target, upto="optimize", config=Config(reuse=False, beam=beam, beam_seconds=seconds))
    rows = [search_result_to_json(p) for p in finished.values()]
    with flush_output_and_ignore_broken_pipe():
        print_json(rows) if as_json else print_schedules(rows)
    ctx.exit(INTERRUPTED if any(p.stopped for p in finished.values()) else 0)


class SearchStatusLine:
    """A status line on standard error, if that is a terminal, that collects the last progress of every kernel."""

    def __init__(self, finished: dict[str, Progress]) -> None:
        self.finished = finished
        self.out = make_console_that_escapes_controls(stderr=True)

    def __enter__(self) -> Any:
        self.status = self.out.status("") if self.out.is_terminal else None
        if self.status is not None:
            self.status.start()
        return self.update_status_and_collect_finished

    def __exit__(self, *exception: object) -> None:
        if self.status is not None:
            self.status.stop()

    def update_status_and_collect_finished(self, p: Progress) -> None:
        """Show the progress of a search, and keep it if the search is over."""
        send_heartbeat()
        if p.done:
            self.finished[f"{p.kernel} {len(self.finished)}"] = p
        if self.status is not None:
            self.status.update(f"{p.kernel}: {p.timed} timed, {format_microseconds(p.first)} to {format_microseconds(p.best)} us")


def search_result_to_json(p: Progress) -> Json:
    """Return the schedule found for a kernel; `chosen` is null where an earlier search had found it."""
    return {
        "kernel": p.kernel,
        "timed": p.timed,
        "chosen": p.first if p.timed and math.isfinite(p.first) else None,
        "best": p.best if math.isfinite(p.best) else None,
        "start": p.state.start,
        "opts": [str(o) for o in p.state.opts],
        "stopped": p.stopped,
    }


def format_microseconds(seconds: float | None) -> str:
    """Format seconds as microseconds; `-` for none."""
    return "-" if seconds is None or not math.isfinite(seconds) else f"{seconds * 1e6:,.1f}"


def print_schedules(rows: list[Json]) -> None:
    """Print the table of schedules."""
    from rich import box
    from rich.table import Table

    from uops.cli.texts import Text

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for name in ("kernel", "timed", "hand-written, us", "best, us", "gain", "schedule"):
        table.add_column(name, justify="left" if name in ("kernel", "schedule") else "right", overflow="fold")
    for row in rows:
        gain = f"{row['chosen'] / row['best']:.2f}" if row["chosen"] and row["best"] else ""
        timed = f"{row['timed']:,}" if row["timed"] else "known"
        opts = Text(", ".join([row["start"], *row["opts"]]))
        table.add_row(Text(row["kernel"]), timed, format_microseconds(row["chosen"]), format_microseconds(row["best"]), gain, opts)
    make_console_that_escapes_controls().print(table)
