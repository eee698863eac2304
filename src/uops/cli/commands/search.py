"""`uops search`: look for the fastest schedule of each kernel by timing, and keep it."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import click

from uops.cli.common import backend_option, console, json_option, print_json, program_argument, say_alive, to_reader
from uops.cli.foreign import apart, target_of

if TYPE_CHECKING:
    from uops.compiler.passes.optimize.search.beam import Progress

Json = dict[str, Any]
INTERRUPTED = 130


@click.command(short_help="Time schedules of a program's kernels.")
@program_argument()
@backend_option(required=True, help="Whose target to time on.")
@click.option("--beam", type=click.IntRange(1), default=2, show_default=True, help="States kept at each step.")
@click.option("--seconds", type=click.IntRange(1), default=10, show_default=True, help="Time for one kernel, at most.")
@json_option()
@apart
@click.pass_context
def search(ctx: click.Context, file: str, backend_name: str, beam: int, seconds: int, as_json: bool) -> None:
    """Search for the schedules of a .uops program's kernels by timing them.

    What is found is kept on disk and used by every compilation with UOPS_BEAM set to the same number of states. Ctrl-C keeps the
    best so far and ends with status 130; the next search goes on from there.
    """
    from uops.compiler import Config, lower
    from uops.compiler.passes.optimize.search.beam import listening
    from uops.spec.ir.text import parse_file
    from uops.spec.verify.dialects import Dialect
    from uops.spec.verify.verifier import verify

    root = parse_file(file)
    verify(root, Dialect.TENSOR)
    found = target_of(backend_name)
    heard: dict[str, Progress] = {}
    with watching(heard) as tell, listening(tell):
        lower(root, found.target, upto="optimize", config=Config(reuse=False, beam=beam, beam_seconds=seconds))
    rows = [row(p) for p in heard.values()]
    with to_reader():
        print_json(rows) if as_json else show(rows)
    ctx.exit(INTERRUPTED if any(p.stopped for p in heard.values()) else 0)


class watching:
    """A line on standard error about the search that runs, on a terminal only; collects the last word about every kernel."""

    def __init__(self, heard: dict[str, Progress]) -> None:
        self.heard = heard
        self.out = console(stderr=True)

    def __enter__(self) -> Any:
        self.status = self.out.status("") if self.out.is_terminal else None
        if self.status is not None:
            self.status.start()
        return self.tell

    def __exit__(self, *exception: object) -> None:
        if self.status is not None:
            self.status.stop()

    def tell(self, p: Progress) -> None:
        """Progress of a search."""
        say_alive()
        if p.done:
            self.heard[f"{p.kernel} {len(self.heard)}"] = p
        if self.status is not None:
            self.status.update(f"{p.kernel}: {p.timed} timed, {micro(p.first)} to {micro(p.best)} us")


def row(p: Progress) -> Json:
    """What was found for a kernel; `chosen` is null where an earlier search knew."""
    return {
        "kernel": p.kernel,
        "timed": p.timed,
        "chosen": p.first if p.timed and math.isfinite(p.first) else None,
        "best": p.best if math.isfinite(p.best) else None,
        "start": p.state.start,
        "opts": [str(o) for o in p.state.opts],
        "stopped": p.stopped,
    }


def micro(seconds: float | None) -> str:
    return "-" if seconds is None or not math.isfinite(seconds) else f"{seconds * 1e6:,.1f}"


def show(rows: list[Json]) -> None:
    """The table on the terminal."""
    from rich import box
    from rich.table import Table

    from uops.cli.texts import Text

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for name in ("kernel", "timed", "hand-written, us", "best, us", "gain", "schedule"):
        table.add_column(name, justify="left" if name in ("kernel", "schedule") else "right", overflow="fold")
    for r in rows:
        gain = f"{r['chosen'] / r['best']:.2f}" if r["chosen"] and r["best"] else ""
        timed = f"{r['timed']:,}" if r["timed"] else "known"
        opts = Text(", ".join([r["start"], *r["opts"]]))
        table.add_row(Text(r["kernel"]), timed, micro(r["chosen"]), micro(r["best"]), gain, opts)
    console().print(table)
