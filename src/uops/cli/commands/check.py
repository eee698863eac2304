"""`uops check`: show every broken claim of a program."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from uops.cli.common import (
    allow_native_option,
    dialect_option,
    flush_output_and_ignore_broken_pipe,
    json_option,
    make_console_that_escapes_controls,
    parse_program,
    print_json,
    program_argument,
)

if TYPE_CHECKING:
    from uops.spec.errors import SpecError
    from uops.spec.verify.verifier import BrokenClaim


@click.command(short_help="Verify a .uops program and show the broken claims.")
@program_argument()
@dialect_option(None, "Also judge the claims of this dialect.")
@allow_native_option()
@json_option()
@click.pass_context
def check(ctx: click.Context, file: str, dialect: str | None, allow_native: bool, as_json: bool) -> None:
    """Verify a .uops program and show every claim that it breaks.

    Exit status 1 if one is broken or the text cannot be read.
    """
    from uops.spec.errors import SpecError
    from uops.spec.ir.native import NativeTextError
    from uops.spec.verify import verifier
    from uops.spec.verify.dialects import Dialect

    try:
        root = parse_program(file, allow_native)
    except NativeTextError:
        raise
    except SpecError as e:
        broken = [_parse_error_to_json(e)]
    else:
        broken = [
            _broken_claim_to_json(b) for b in verifier.find_broken_claims(root, Dialect(dialect.lower()) if dialect else None)
        ]
    with flush_output_and_ignore_broken_pipe():
        if as_json:
            print_json({"file": file, "dialect": dialect, "ok": not broken, "broken": broken})
        else:
            _print_broken_claim_messages(file, broken)
    ctx.exit(1 if broken else 0)


def _parse_error_to_json(e: SpecError) -> dict[str, Any]:
    return {"claim": e.claim, "ruling": None, "row": None, "message": str(e), "line": e.line, "column": e.column}


def _broken_claim_to_json(b: BrokenClaim) -> dict[str, Any]:
    return {
        "claim": b.claim.id,
        "ruling": b.claim.ruling or None,
        "row": b.claim.spec,
        "message": b.message,
        "line": None,
        "column": None,
    }


def _print_broken_claim_messages(file: str, broken_claims: list[dict[str, Any]]) -> None:
    from uops.cli.texts import Text
    from uops.spec.untrusted import describe_path

    out = make_console_that_escapes_controls()
    if not broken_claims:
        out.print(Text(f"{describe_path(file)}: no broken claim"))
    for entry in broken_claims:
        text = Text(entry["message"])
        if entry["claim"]:
            text.highlight_words([entry["claim"]], "bold red")
        out.print(text, soft_wrap=True)
    if len(broken_claims) > 1:
        out.print(Text(f"{len(broken_claims)} broken claims"), style="dim")
