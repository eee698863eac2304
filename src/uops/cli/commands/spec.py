"""`uops spec`: show rows, claims and rulings of the specification."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import click

from uops.cli.common import json_option, make_console_that_escapes_controls, print_json

if TYPE_CHECKING:
    from rich.console import Console

    from uops.spec.rows.claims import Claim
    from uops.spec.rows.named.base import ExecutedBy, NamedRow, StatedClaim
    from uops.spec.rows.rows import OpSpec
    from uops.spec.rulings import Ruling


#: Characters of the first of two columns, unless a claim's id is longer.
_NAME_WIDTH = 14


@dataclass(slots=True)
class SpecMatches:
    """The rows, claims and rulings that match the ids, each once, in the order of the specification's tables."""

    rows: list[OpSpec | NamedRow] = field(default_factory=list)
    claims: list[Claim | StatedClaim] = field(default_factory=list)
    rulings: list[Ruling] = field(default_factory=list)


@click.command(short_help="Show rows, claims and rulings.")
@click.argument("ids", nargs=-1, metavar="[ID]...")
@click.option("--example", is_flag=True, help="Print a program of the suite for one row, as a file for uops run.")
@json_option()
def spec(ids: tuple[str, ...], example: bool, as_json: bool) -> None:
    """Show rows, claims and rulings of the specification.

    An ID is a row (Movement/Pad, Stage/expand), an op (pad), a claim (PAD.C2), a ruling (R43) or a glob over them ('OptOp/*',
    'R0*'). Without an ID, all rows are listed.

    With --example, the smallest program of the conformance suite for one row is printed, with its inputs. Comments name the surface
    that it needs, and the declaration of a backend that lacks the row.
    """
    matches = SpecMatches()
    for pattern in ids:
        add_first_kind_of_match_or_raise_usage_error(pattern, matches)
    if example:
        if not matches.rows:
            raise click.UsageError("--example needs the ID of a row")
        if len(matches.rows) > 1 and not as_json:
            raise click.UsageError(f"a file holds one program, and {len(matches.rows)} rows match: name one, or use --json for all")
        _print_examples([row.id for row in matches.rows], as_json)
    elif as_json:
        print_json(_matches_to_json(matches) if ids else _specification_to_json())
    elif not ids:
        _print_tables_of_op_and_other_rows(make_console_that_escapes_controls())
    else:
        _print_matches_and_cited_rulings(make_console_that_escapes_controls(), matches)


def add_first_kind_of_match_or_raise_usage_error(pattern: str, matches: SpecMatches) -> None:
    """Add the matches of `pattern`; without any, raise a usage error with similar names."""
    from uops.spec.rows.rows import CLAIMS, STATED_CLAIMS, find_rows, map_printed_names_to_row_ids, row_of
    from uops.spec.rulings import RULINGS

    all_claims: list[Claim | StatedClaim] = [*CLAIMS.values(), *STATED_CLAIMS.values()]
    claims = [c for c in all_claims if c.id.lower() == pattern.lower()]
    rulings = _filter_by_id(pattern, RULINGS.values())
    rows = [] if claims or rulings else find_rows(pattern)
    if not (claims or rulings or rows):
        names = (map_printed_names_to_row_ids(document) for document in ("tinyspec", "bestiary"))
        rows = [row_of(i) for ids in names for name, row_ids in ids.items() if name.lower() == pattern.lower() for i in row_ids]
    if not (claims or rulings or rows):
        claims = _filter_by_id(pattern, all_claims)
    if not (claims or rulings or rows):
        raise click.UsageError(f"nothing in the specification is called {pattern!r}{_suggest_ids(pattern)}")
    matches.claims += [c for c in claims if c not in matches.claims]
    matches.rulings += [r for r in rulings if r not in matches.rulings]
    matches.rows += [r for r in rows if r not in matches.rows]


def _filter_by_id(pattern: str, items: Iterable[Any]) -> list[Any]:
    return [i for i in items if fnmatch.fnmatchcase(i.id.lower(), pattern.lower())]


def _suggest_ids(pattern: str) -> str:
    from uops.spec.rows.rows import CLAIMS, NAMED_ROWS, ROWS, STATED_CLAIMS
    from uops.spec.rulings import RULINGS
    from uops.spec.suggest import format_did_you_mean

    rows = (n for r in ROWS.values() for n in (r.id, r.op.name))
    return format_did_you_mean(pattern, (*rows, *NAMED_ROWS, *CLAIMS, *STATED_CLAIMS, *RULINGS))


# ------------------------------------------------------------------------------------------------------------ examples


def _print_examples(row_ids: list[str], as_json: bool) -> None:
    """Print the smallest program of the suite for each row. Raises a usage error if no row has one."""
    from uops.cli.common import echo

    examples = {row_id: text for row_id in row_ids if (text := find_example(row_id)) is not None}
    if not examples:
        raise click.UsageError(f"the suite has no program for {', '.join(row_ids)}: another subject than a backend is judged by it")
    if as_json:
        print_json(examples)
    else:
        echo("\n".join(examples.values()), nl=False)


def find_example(row_id: str) -> str | None:
    """Return the text of the smallest program of the smoke tier for a row, with inputs in comments; None if it has none."""
    import numpy as np

    from uops.backends.conformance.cases import generate_cases, generate_optional_cases
    from uops.backends.conformance.model import ConformanceTier
    from uops.backends.contract import TENSOR_SURFACE
    from uops.fuzz.reduce.reproducer import format_elements
    from uops.spec.ir.native import is_native
    from uops.spec.ir.node import toposort
    from uops.spec.ir.text import show
    from uops.spec.verify.infer import infer_tensor_kernel_or_bestiary_dialect

    cases = [*generate_cases(ConformanceTier.SMOKE, row_id), *generate_optional_cases(ConformanceTier.SMOKE, row_id)]
    if not cases:
        return None
    smallest = min(cases, key=lambda c: (c.surface != TENSOR_SURFACE, len(toposort(c.graph)), sum(map(np.size, c.inputs.values()))))
    dialect, nodes = infer_tensor_kernel_or_bestiary_dialect(smallest.graph).value, toposort(smallest.graph)
    option = ("" if dialect == "tensor" else f" --dialect {dialect}") + (" --allow-native" if any(map(is_native, nodes)) else "")
    lines = [
        f"; {smallest.id}: {', '.join(dict.fromkeys(s.edge for s in smallest.segments))}",
        f"; run it: uops run FILE{option} --backend NAME",
        f"; it needs the surface {smallest.surface}; a backend that lacks the row declares Missing({row_id!r}, '*', reason)",
        f"; dtypes of the row's programs: {' '.join(dict.fromkeys(c.dtype.name for c in cases))}",
        *[f"; input {key}: {format_elements(value)}".rstrip() for key, value in sorted(smallest.inputs.items())],
    ]
    return "\n".join([*lines, show(smallest.graph, types=True)])


# ---------------------------------------------------------------------------------------------------------------- json


def _specification_to_json() -> dict[str, Any]:
    from uops.spec.rows.rows import hash_spec_without_executors, to_json

    return {"hash": f"sha256:{hash_spec_without_executors()}", **to_json()}


def _matches_to_json(matches: SpecMatches) -> dict[str, Any]:
    from uops.spec.rows.rows import to_json

    row_ids = {r.id for r in matches.rows}
    specification = to_json()
    return {
        "ops": [row for row in specification["ops"] if row["id"] in row_ids],
        "rows": [row for row in specification["rows"] if row["id"] in row_ids],
        "claims": [{"id": c.id, "text": c.text, "ruling": c.ruling or None, "row": c.spec} for c in matches.claims],
        "rulings": {r.id: {"topic": r.topic, "text": r.text} for r in matches.rulings},
    }


# ---------------------------------------------------------------------------------------------------------------- text


def _print_tables_of_op_and_other_rows(out: Console) -> None:
    """Print a table of the ops, and one of all other rows."""
    from uops.spec.rows.rows import NAMED_ROWS, ROWS

    ops = [(r.family.value, r.id, r.document, r.schema.text, str(len(r.claims)), r.semantics) for r in ROWS.values()]
    named = [(r.family, r.id, r.document, r.subject.value, str(len(r.claims)), r.semantics) for r in NAMED_ROWS.values()]
    _print_row_table_with_rule_between_families(out, "Sources", ops)
    _print_row_table_with_rule_between_families(out, "Judges", named)
    out.print(f"{len(ROWS)} rows of ops, {len(NAMED_ROWS)} other rows; `uops spec ID` shows one", style="dim")


def _print_row_table_with_rule_between_families(
    out: Console, third_column: str, lines_led_by_family: Iterable[tuple[str, ...]]
) -> None:
    """Print lines of (family, row, document, third column, claims, meaning), with a rule between families."""
    from rich import box
    from rich.table import Table

    from uops.cli.texts import Text

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    columns = (("Row", "bold"), ("Document", "dim"), (third_column, "cyan"), ("Claims", ""), ("Meaning", ""))
    for name, style in columns:
        table.add_column(name, style=style, justify="right" if name == "Claims" else "left", no_wrap=name == "Row")
    previous = None
    for family, *cells in lines_led_by_family:
        if previous not in (None, family):
            table.add_section()
        previous = family
        table.add_row(*map(Text, cells))
    out.print(table)


def _print_matches_and_cited_rulings(out: Console, matches: SpecMatches) -> None:
    from uops.spec.rows.named.base import NamedRow
    from uops.spec.rulings import RULINGS

    for row in matches.rows:
        if isinstance(row, NamedRow):
            _print_named_row(out, row)
        else:
            _print_op_row(out, row)
    for c in matches.claims:
        _print_name_and_text(out, c.id, c.text, width=max(_NAME_WIDTH, len(c.id)))
        _print_name_and_text(out, "row", c.spec, "dim")
    rulings = {i for c in (*matches.claims, *(c for r in matches.rows for c in r.claims)) for i in re.findall(r"\w+", c.ruling)}
    cited = [r for r in RULINGS.values() if r.id in rulings and r not in matches.rulings]
    for r in (*matches.rulings, *cited):
        _print_name_and_text(out, r.id, f"{r.topic}: {r.text}", "bold magenta")


def _print_op_row(out: Console, row: OpSpec) -> None:
    from uops.spec.rows.executors import name_functions_that_execute_op
    from uops.spec.verify.dialects import dialects_of

    rules = {column: getattr(row, column).__name__ for column in ("dtype", "shape", "device", "min_max", "axis")}
    core = row.decomposition.removeprefix("core: ") if isinstance(row.decomposition, str) else "becomes other ops, by a graph"
    _print_id_document_and_semantics(out, row)
    _print_name_and_text(out, "sources", row.schema.text or "none")
    _print_name_and_text(out, "arg", _describe_arg(row.arg_type) if row.arg_type else "none")
    _print_name_and_text(out, "derived", ", ".join(f"{k}: {v.strip('_<>')}" for k, v in rules.items()))
    _print_name_and_text(out, "dialects", ", ".join(d.value for d in dialects_of(row.op)) or "none")
    _print_name_and_text(out, "core", core)
    _print_name_and_text(out, "gradient", row.gradient.formula)
    _print_executors(out, name_functions_that_execute_op(row.op))
    _print_claims(out, row)


def _describe_arg(arg_type: type) -> str:
    """Return the class of an arg with its fields, their types and their defaults: `ReduceArg(op: Op, axes: tuple = ())`."""
    import dataclasses

    fields = []
    for f in dataclasses.fields(arg_type):
        default = "" if f.default is dataclasses.MISSING else f" = {f.default!r}"
        fields.append(f"{f.name}: {f.type if isinstance(f.type, str) else f.type.__name__}{default}")
    return f"{arg_type.__name__}({', '.join(fields)})"


def _print_named_row(out: Console, row: NamedRow) -> None:
    _print_id_document_and_semantics(out, row)
    for name, value in row.columns.items():
        _print_name_and_text(out, name.replace("_", " "), _format_column_counting_ops_of_rules(value))
    _print_name_and_text(out, "judges", row.subject.value)
    _print_executors(out, row.executed_by)
    _print_claims(out, row)


def _format_column_counting_ops_of_rules(value: Any) -> str:
    """Return a cell as text; of the rules of a property, each with the number of its ops."""
    if isinstance(value, dict):
        return ", ".join(f"{name.strip('_<>')} ({len(rows)})" for name, rows in value.items())
    if isinstance(value, list):
        return ", ".join(value) or "none"
    return {True: "yes", False: "no", None: "none"}[value] if value is None or isinstance(value, bool) else str(value)


def _print_id_document_and_semantics(out: Console, row: OpSpec | NamedRow) -> None:
    from uops.cli.texts import Text

    out.print(Text.assemble((row.id, "bold"), "  ", (row.document, "dim")))
    out.print(Text(row.semantics))


def _print_executors(out: Console, executed_by: ExecutedBy) -> None:
    """Print what executes a row, a name a line, or why nothing does."""
    for side, names in (("interp", executed_by.interp), ("compiler", executed_by.compiler)):
        _print_name_and_text(out, side, "\n".join(names) or f"none: {executed_by.missing}")


def _print_claims(out: Console, row: OpSpec | NamedRow) -> None:
    width = max((_NAME_WIDTH, *(len(c.id) for c in row.claims)))
    for c in row.claims:
        _print_name_and_text(out, c.id, f"{c.text} ({c.ruling})" if c.ruling else c.text, width=width)
    out.print()


def _print_name_and_text(out: Console, name: str, text: str, style: str = "bold cyan", width: int = _NAME_WIDTH) -> None:
    """Print a name and its text in two columns, the first of them `width` characters wide."""
    from rich.table import Table

    from uops.cli.texts import Text

    grid = Table.grid(padding=(0, 2))
    grid.add_column(width=width, no_wrap=True)
    grid.add_column()
    grid.add_row(Text(name, style if "." in name or name[:1] in "RP" else "dim"), Text(text))
    out.print(grid)
