"""`uops backends`: list the backends, and what is missing for those that are not here."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import click

from uops.cli.common import flush_output_and_ignore_broken_pipe, json_option, make_console_that_escapes_controls, print_json

if TYPE_CHECKING:
    from uops.backends.contract import Capabilities

Json = dict[str, Any]
#: Processes that describe backends at the same time.
_JOBS = min(4, os.cpu_count() or 1)


@click.command(short_help="List backends, and what is missing for the others.")
@click.argument("names", nargs=-1, metavar="[NAMES]")
@json_option()
@click.pass_context
def backends(ctx: click.Context, names: tuple[str, ...], as_json: bool) -> None:
    """List backends by name, or all that are registered: what they are, what they declare, and what is missing.

    Each describes itself in a process of its own. Exit status 1 if a backend that is named is not here.
    """
    from uops.backends import registry

    for name in names:
        registry.locate_factory(name)
    with ThreadPoolExecutor(_JOBS) as pool:
        rows = list(pool.map(_describe, names or registry.names()))
    with flush_output_and_ignore_broken_pipe():
        if as_json:
            print_json({"backends": rows})
        else:
            _print_table(rows)
    ctx.exit(1 if names and not all(row["here"] for row in rows) else 0)


def _describe(name: str) -> Json:
    """Return what a backend says of itself, or why it is not here."""
    from uops.backends.worker.client import BackendWorker, Limits
    from uops.spec.errors import UopsError

    try:
        with BackendWorker(name, limits=Limits()) as worker:
            info = worker.backend_info()
    except UopsError as e:
        return {"name": name, "here": False, "reason": str(e).removeprefix(f"{name} does not support ")}
    return {
        "name": name,
        "here": True,
        "version": info.version,
        "target": info.compiles,
        "declared": info.capabilities.to_json(),
    }


def describe_features(declared: Capabilities) -> str:
    """Return what a backend declares, in words. Sizes of memory are in KB."""
    from uops.backends.contract import Capabilities
    from uops.spec.rows.named.base import RowSubject
    from uops.spec.rows.rows import rows_of_subject

    everything, rows = Capabilities(), rows_of_subject(RowSubject.BACKEND)
    dtypes, lacking = len(declared.dtypes), [r for r in rows if declared.missing(r.id) is not None]
    words = ["every dtype" if dtypes == len(everything.dtypes) else f"{dtypes} of {len(everything.dtypes)} dtypes"]
    words.append(f"{len(rows) - len(lacking)} of {len(rows)} rows" if lacking else "every row")
    words.append("surfaces " + ", ".join(declared.surfaces))
    if max(declared.vector_widths) > 1:
        words.append(f"vectors of {max(declared.vector_widths)} lanes")
    if declared.threads > 1:
        words.append(f"{declared.threads} threads")
    if declared.local_memory:
        words.append(f"{declared.local_memory >> 10} KB of local memory")
    if declared.tensor_cores:
        words.append(f"{len(declared.tensor_cores)} tensor-core instructions")
    if declared.abilities:
        words.append("abilities " + ", ".join(a.replace("_", " ") for a in declared.abilities))
    if declared.traits:
        words.append("traits " + ", ".join(declared.traits))
    if declared.deviations:
        words.append(f"{len(declared.deviations)} deviations")
    return "; ".join(words)


def _print_table(rows: list[Json]) -> None:
    """Print a line per backend: those that are here first."""
    from rich import box
    from rich.table import Table

    from uops.backends.contract import Capabilities
    from uops.cli.texts import Text

    here, missing = [r for r in rows if r["here"]], [r for r in rows if not r["here"]]
    out = make_console_that_escapes_controls()
    table = Table(box=box.SIMPLE, pad_edge=False)
    for title in ("backend", "kind", "declares", "version"):
        table.add_column(title, overflow="fold", no_wrap=title == "backend")
    for r in here:
        features = describe_features(Capabilities.of_json(r["declared"]))
        table.add_row(r["name"], "target" if r["target"] else "evaluator", features, Text(r["version"]))
    if here:
        out.print(table)
    if missing:
        table = Table(box=box.SIMPLE, pad_edge=False)
        table.add_column("not here", no_wrap=True)
        table.add_column("what is missing", overflow="fold")
        for r in missing:
            table.add_row(r["name"], Text(r["reason"]))  # the name of an extra is no markup
        out.print(table)
