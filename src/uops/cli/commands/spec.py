"""`uops spec`: show rows, claims and rulings of the specification."""

from __future__ import annotations

import fnmatch
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import click

from uops.cli.common import json_option, make_console, print_json

if TYPE_CHECKING:
    from rich.console import Console

    from uops.spec.rows.claims import Claim
    from uops.spec.rows.rows import OpSpec
    from uops.spec.rulings import Ruling


@dataclass(slots=True)
class SpecMatches:
    """The rows, claims and rulings that match the ids, each once, in the order of the specification's tables."""

    rows: list[OpSpec] = field(default_factory=list)
    claims: list[Claim] = field(default_factory=list)
    rulings: list[Ruling] = field(default_factory=list)


@click.command(short_help="Show rows, claims and rulings.")
@click.argument("ids", nargs=-1, metavar="[ID]...")
@json_option()
def spec(ids: tuple[str, ...], as_json: bool) -> None:
    """Show rows, claims and rulings of the specification.

    An ID is a row (Movement/Pad), an op (pad), a claim (PAD.C2), a ruling (R43) or a glob over them ('Movement/*', 'R0*'). Without
    an ID, all rows are listed.
    """
    matches = SpecMatches()
    for pattern in ids:
        add_matches(pattern, matches)
    if as_json:
        print_json(_matches_to_json(matches) if ids else _specification_to_json())
    elif not ids:
        _print_row_table(make_console())
    else:
        _print_matches(make_console(), matches)


def add_matches(pattern: str, matches: SpecMatches) -> None:
    """Add the matches of `pattern`; without any, raise a usage error with similar names."""
    from uops.spec.rows.rows import CLAIMS, ROWS, find_rows, map_printed_names_to_row_ids, row_of
    from uops.spec.rulings import RULINGS

    claims = [c for c in CLAIMS.values() if c.id.lower() == pattern.lower()]
    rulings = _filter_by_id(pattern, RULINGS.values())
    rows = [] if claims or rulings else find_rows(pattern)
    if not (claims or rulings or rows):
        document_ids = {k.lower(): v for d in ("tinyspec", "bestiary") for k, v in map_printed_names_to_row_ids(d).items()}
        row_ids = {r.id for r in ROWS.values()}
        rows = [row_of(i) for i in document_ids.get(pattern.lower(), ()) if i in row_ids]
    if not (claims or rulings or rows):
        claims = _filter_by_id(pattern, CLAIMS.values())
    if not (claims or rulings or rows):
        raise click.UsageError(f"nothing in the specification is called {pattern!r}{_suggest_ids(pattern)}")
    matches.claims += [c for c in claims if c not in matches.claims]
    matches.rulings += [r for r in rulings if r not in matches.rulings]
    matches.rows += [r for r in rows if r not in matches.rows]


def _filter_by_id(pattern: str, items: Iterable[Any]) -> list[Any]:
    return [i for i in items if fnmatch.fnmatchcase(i.id.lower(), pattern.lower())]


def _suggest_ids(pattern: str) -> str:
    from uops.spec.rows.rows import CLAIMS, ROWS
    from uops.spec.rulings import RULINGS
    from uops.spec.suggest import format_did_you_mean

    return format_did_you_mean(pattern, (*(n for r in ROWS.values() for n in (r.id, r.op.name)), *CLAIMS, *RULINGS))


# ---------------------------------------------------------------------------------------------------------------- json


def _specification_to_json() -> dict[str, Any]:
    from uops.spec.rows.rows import spec_hash, to_json

    return {"hash": f"sha256:{spec_hash()}", **to_json()}


def _matches_to_json(matches: SpecMatches) -> dict[str, Any]:
    from uops.spec.rows.rows import to_json

    row_ids = {r.id for r in matches.rows}
    return {
        "ops": [row for row in to_json()["ops"] if row["id"] in row_ids],
        "claims": [{"id": c.id, "text": c.text, "ruling": c.ruling or None, "row": c.spec} for c in matches.claims],
        "rulings": {r.id: {"topic": r.topic, "text": r.text} for r in matches.rulings},
    }


# ---------------------------------------------------------------------------------------------------------------- text


def _print_row_table(out: Console) -> None:
    from rich import box
    from rich.table import Table

    from uops.cli.texts import Text
    from uops.spec.rows.rows import ROWS

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for name, style in (("Row", "bold"), ("Document", "dim"), ("Sources", "cyan"), ("Claims", ""), ("Meaning", "")):
        table.add_column(name, style=style, justify="right" if name == "Claims" else "left", no_wrap=name == "Row")
    family = None
    for row in ROWS.values():
        if family not in (None, row.family):
            table.add_section()
        family = row.family
        table.add_row(*map(Text, (row.id, row.document, row.schema.text, str(len(row.claims)), row.semantics)))
    out.print(table)
    out.print(f"{len(ROWS)} rows; `uops spec ID` shows one", style="dim")


def _print_matches(out: Console, matches: SpecMatches) -> None:
    from uops.spec.rulings import RULINGS

    for row in matches.rows:
        _print_row(out, row)
    for c in matches.claims:
        _print_name_and_text(out, c.id, c.text)
        _print_name_and_text(out, "row", c.spec, "dim")
    rulings = {c.ruling for c in (*matches.claims, *(c for r in matches.rows for c in r.claims)) if c.ruling}
    cited = [r for r in RULINGS.values() if any(r.id in name for name in rulings) and r not in matches.rulings]
    for r in (*matches.rulings, *cited):
        _print_name_and_text(out, r.id, f"{r.topic}: {r.text}", "bold magenta")


def _print_row(out: Console, row: OpSpec) -> None:
    from uops.cli.texts import Text
    from uops.spec.verify.dialects import dialects_of

    rules = {column: getattr(row, column).__name__ for column in ("dtype", "shape", "device", "min_max", "axis")}
    core = row.decomposition.removeprefix("core: ") if isinstance(row.decomposition, str) else "becomes other ops, by a graph"
    out.print(Text.assemble((row.id, "bold"), "  ", (row.document, "dim")))
    out.print(Text(row.semantics))
    _print_name_and_text(out, "sources", row.schema.text or "none")
    _print_name_and_text(out, "arg", row.arg_type.__name__ if row.arg_type else "none")
    _print_name_and_text(out, "derived", ", ".join(f"{k}: {v.strip('_<>')}" for k, v in rules.items()))
    _print_name_and_text(out, "dialects", ", ".join(d.value for d in dialects_of(row.op)) or "none")
    _print_name_and_text(out, "core", core)
    _print_name_and_text(out, "gradient", row.gradient.remark)
    for c in row.claims:
        _print_name_and_text(out, c.id, f"{c.text} ({c.ruling})" if c.ruling else c.text, "bold cyan")
    out.print()


def _print_name_and_text(out: Console, name: str, text: str, style: str = "bold cyan") -> None:
    """Print a name and its text in two columns."""
    from rich.table import Table

    from uops.cli.texts import Text

    grid = Table.grid(padding=(0, 2))
    grid.add_column(width=14, no_wrap=True)
    grid.add_column()
    grid.add_row(Text(name, style if "." in name or name[:1] in "RP" else "dim"), Text(text))
    out.print(grid)
