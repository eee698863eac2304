"""`uops spec`: rows, claims and rulings of the specification."""

from __future__ import annotations

import fnmatch
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import click

from uops.cli.common import console, json_option, print_json

if TYPE_CHECKING:
    from rich.console import Console

    from uops.spec.rows.claims import Claim
    from uops.spec.rows.rows import OpSpec
    from uops.spec.rulings import Ruling


@dataclass(slots=True)
class Found:
    """What the ids named, each once, in the order of the specification's tables."""

    rows: list[OpSpec] = field(default_factory=list)
    claims: list[Claim] = field(default_factory=list)
    rulings: list[Ruling] = field(default_factory=list)


@click.command(short_help="Show rows, claims and rulings.")
@click.argument("ids", nargs=-1, metavar="[ID]...")
@json_option()
def spec(ids: tuple[str, ...], as_json: bool) -> None:
    """Show rows, claims and rulings of the specification.

    An ID is a row (Movement/Pad), an op (pad), a claim (PAD.C2), a ruling (R43) or a glob over them ('Movement/*', 'R0*'). Without
    one, all rows are listed.
    """
    found = Found()
    for one in ids:
        look_up(one, found)
    if as_json:
        print_json(_json(found) if ids else _everything())
    elif not ids:
        _list(console())
    else:
        _details(console(), found)


def look_up(pattern: str, found: Found) -> None:
    """Add what `pattern` names; a usage error, with what it may have meant, if that is nothing."""
    from uops.spec.rows.rows import CLAIMS, ROWS, document_names, find, row_of
    from uops.spec.rulings import RULINGS

    claims = [c for c in CLAIMS.values() if c.id.lower() == pattern.lower()]
    rulings = _matching(pattern, RULINGS.values())
    rows = [] if claims or rulings else find(pattern)
    if not (claims or rulings or rows):
        printed = {k.lower(): v for d in ("tinyspec", "bestiary") for k, v in document_names(d).items()}
        known = {r.id for r in ROWS.values()}
        rows = [row_of(i) for i in printed.get(pattern.lower(), ()) if i in known]
    if not (claims or rulings or rows):
        claims = _matching(pattern, CLAIMS.values())
    if not (claims or rulings or rows):
        raise click.UsageError(f"nothing in the specification is called {pattern!r}{_perhaps(pattern)}")
    found.claims += [c for c in claims if c not in found.claims]
    found.rulings += [r for r in rulings if r not in found.rulings]
    found.rows += [r for r in rows if r not in found.rows]


def _matching(pattern: str, items: Iterable[Any]) -> list[Any]:
    return [i for i in items if fnmatch.fnmatchcase(i.id.lower(), pattern.lower())]


def _perhaps(pattern: str) -> str:
    from uops.spec.rows.rows import CLAIMS, ROWS
    from uops.spec.rulings import RULINGS
    from uops.spec.suggest import suggest_names

    return suggest_names(pattern, (*(n for r in ROWS.values() for n in (r.id, r.op.name)), *CLAIMS, *RULINGS))


# ---------------------------------------------------------------------------------------------------------------- json


def _everything() -> dict[str, Any]:
    from uops.spec.rows.rows import spec_hash, to_json

    return {"hash": f"sha256:{spec_hash()}", **to_json()}


def _json(found: Found) -> dict[str, Any]:
    from uops.spec.rows.rows import to_json

    wanted = {r.id for r in found.rows}
    return {
        "ops": [row for row in to_json()["ops"] if row["id"] in wanted],
        "claims": [{"id": c.id, "text": c.text, "ruling": c.ruling or None, "row": c.spec} for c in found.claims],
        "rulings": {r.id: {"topic": r.topic, "text": r.text} for r in found.rulings},
    }


# ---------------------------------------------------------------------------------------------------------------- text


def _list(out: Console) -> None:
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


def _details(out: Console, found: Found) -> None:
    from uops.spec.rulings import RULINGS

    for row in found.rows:
        _row(out, row)
    for c in found.claims:
        _pair(out, c.id, c.text)
        _pair(out, "row", c.spec, "dim")
    named = {c.ruling for c in (*found.claims, *(c for r in found.rows for c in r.claims)) if c.ruling}
    below = [r for r in RULINGS.values() if any(r.id in name for name in named) and r not in found.rulings]
    for r in (*found.rulings, *below):
        _pair(out, r.id, f"{r.topic}: {r.text}", "bold magenta")


def _row(out: Console, row: OpSpec) -> None:
    from uops.cli.texts import Text
    from uops.spec.verify.dialects import dialects_of

    rules = {column: getattr(row, column).__name__ for column in ("dtype", "shape", "device", "min_max", "axis")}
    core = row.decomposition.removeprefix("core: ") if isinstance(row.decomposition, str) else "becomes other ops, by a graph"
    out.print(Text.assemble((row.id, "bold"), "  ", (row.document, "dim")))
    out.print(Text(row.semantics))
    _pair(out, "sources", row.schema.text or "none")
    _pair(out, "arg", row.arg_type.__name__ if row.arg_type else "none")
    _pair(out, "derived", ", ".join(f"{k}: {v.strip('_<>')}" for k, v in rules.items()))
    _pair(out, "dialects", ", ".join(d.value for d in dialects_of(row.op)) or "none")
    _pair(out, "core", core)
    _pair(out, "gradient", row.gradient.remark)
    for c in row.claims:
        _pair(out, c.id, f"{c.text} ({c.ruling})" if c.ruling else c.text, "bold cyan")
    out.print()


def _pair(out: Console, name: str, text: str, style: str = "bold cyan") -> None:
    """A name and its text, the text in a column of its own."""
    from rich.table import Table

    from uops.cli.texts import Text

    grid = Table.grid(padding=(0, 2))
    grid.add_column(width=14, no_wrap=True)
    grid.add_column()
    grid.add_row(Text(name, style if "." in name or name[:1] in "RP" else "dim"), Text(text))
    out.print(grid)
