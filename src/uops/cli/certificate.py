"""`uops check-certificate`: whether a certificate holds, by the solver alone."""

from __future__ import annotations

import json
from pathlib import Path

import click

from uops.cli.common import json_option, print_json


@click.command("check-certificate")
@click.argument("file", type=click.Path(exists=True, dir_okay=False))
@json_option()
@click.pass_context
def check_certificate(ctx: click.Context, file: str, as_json: bool) -> None:
    """Check a certificate that `uops compile --certificate` wrote.

    All claims are made anew from the texts in it, and the solver is asked about each. Exit status 1 if one does not hold.
    """
    from uops.compiler.validate.certificate import TRUSTED, check
    from uops.spec.errors import UopsError

    try:
        made = json.loads(Path(file).read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as e:
        raise UopsError(f"{file} is no JSON: {e}") from e
    if not isinstance(made, dict):
        raise UopsError(f"{file} is no certificate")
    wrong = check(made)
    if as_json:
        print_json({"ok": not wrong, "wrong": wrong, "claims": len(made.get("claims", ())), "trusted": list(TRUSTED)})
    else:
        for line in wrong:
            click.echo(line)
        if not wrong:
            rules, claims = len(made["rules"]), len(made["claims"])
            click.echo(f"holds: {claims} claims by {made['solver']}, {rules} rules by the ledger")
            click.echo("It rests on:")
            for line in TRUSTED:
                click.echo(f"  - {line}")
    ctx.exit(1 if wrong else 0)
