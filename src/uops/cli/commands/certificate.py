"""`uops check-certificate`: whether a certificate holds, by the solver alone."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import click

from uops.cli.common import echo, json_option, print_json


@click.command("check-certificate", short_help="Check a certificate that compile wrote.")
@click.argument("file", type=click.Path(exists=True, dir_okay=False))
@click.option("--seconds", type=click.IntRange(1), default=600, show_default=True, help="Time that the check may take.")
@json_option()
@click.pass_context
def check_certificate(ctx: click.Context, file: str, seconds: int, as_json: bool) -> None:
    """Check a certificate that `uops compile --certificate` wrote.

    All claims are made anew from the texts in it, and the solver is asked about each. Exit status 1 if one does not hold, or if
    the time is over; 2 if the file is no certificate.
    """
    from uops.compiler.validate.certificate import TRUSTED, OutOfTime, check, load, trusted_base
    from uops.spec.untrusted import describe_path

    made = load(Path(file))
    try:
        with _limit_time(seconds):
            wrong = [_one_line(why) for why in check(made, seconds)]
    except OutOfTime as e:
        wrong = [str(e)]
    rests = list(TRUSTED) if wrong else trusted_base(made)
    if as_json:
        print_json({"ok": not wrong, "wrong": wrong, "claims": len(made["claims"]), "trusted": rests})
    else:
        for line in wrong:
            echo(f"{describe_path(file)}: {line}")
        if not wrong:
            rules, claims = len(made["rules"]), len(made["claims"])
            echo(f"holds: {claims} claims by {made['solver']}, {rules} rules by the ledger")
            echo("It rests on:")
            for line in rests:
                echo(f"  - {line}")
    ctx.exit(1 if wrong else 0)


@contextmanager
def _limit_time(seconds: int) -> Iterator[None]:
    """Raise OutOfTime when the time is over; the solver has a limit of its own, the reader of texts has this one."""
    from uops.compiler.validate.certificate import OutOfTime

    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def over(number: int, frame: object) -> None:
        raise OutOfTime(f"not decided within {seconds} s")

    before = signal.signal(signal.SIGALRM, over)
    signal.setitimer(signal.ITIMER_REAL, seconds + 1, 1)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def _one_line(why: str) -> str:
    """A reason, which may have names and lines of the file in it, as one line."""
    from uops.spec.untrusted import printable

    first, *more = why.split("\n")
    return printable(first)[:500] + (f" (and {len(more)} more)" if more else "")
