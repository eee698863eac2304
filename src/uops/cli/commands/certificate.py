"""`uops check-certificate`: check a certificate with the solver alone."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import click

from uops.cli.common import (
    HOW_TO_ALLOW_NATIVE,
    allow_native_option,
    echo,
    json_option,
    print_json,
    read_and_verify_program_wrapping_kernel,
)

#: Largest time limit, in seconds, which is within the range of the system's timers.
MOST_SECONDS = 10**9


@click.command("check-certificate", short_help="Check a certificate that compile wrote.")
@click.argument("file", type=click.Path(exists=True, dir_okay=False))
@click.option(
    "--seconds", type=click.IntRange(1, MOST_SECONDS), default=600, show_default=True, help="Time limit of the check, in seconds."
)
@click.option(
    "--program",
    type=click.Path(exists=True, dir_okay=False),
    help="The program that it shall be a certificate of, as a .uops file.",
)
@allow_native_option()
@json_option()
@click.pass_context
def check_certificate(ctx: click.Context, file: str, seconds: int, program: str | None, allow_native: bool, as_json: bool) -> None:
    """Check a certificate that `uops compile --certificate` wrote.

    All claims are derived again from the texts in it, and the solver checks each. Exit status 1 if one does not hold, if it is of
    another program or if the time is over; 2 if the file is not a certificate.
    """
    from uops.compiler.validate.certificate import (
        TRUSTED,
        OutOfTime,
        check_certificate_and_list_faults,
        digest_program,
        load_certificate_and_check_digest,
        refuse_native_text_in_certificate,
    )
    from uops.spec.untrusted import describe_path
    from uops.spec.verify.dialects import Dialect

    certificate = load_certificate_and_check_digest(Path(file))
    failures: list[str] = []
    try:
        with _raise_out_of_time_after(seconds):
            if not allow_native:
                refuse_native_text_in_certificate(certificate, describe_path(file), HOW_TO_ALLOW_NATIVE)
            if (
                program is not None
                and digest_program(read_and_verify_program_wrapping_kernel(program, Dialect.TENSOR, allow_native))
                != certificate["program"]
            ):
                failures.append(f"it is no certificate of {describe_path(program)}")
            failures += [_shorten_reason(why) for why in check_certificate_and_list_faults(certificate, seconds)]
    except OutOfTime as e:
        failures.append(str(e))
    trusted = list(TRUSTED) if failures else certificate["trusted"]
    if as_json:
        print_json(
            {
                "ok": not failures,
                "program": certificate["program"],
                "wrong": failures,
                "claims": len(certificate["claims"]),
                "trusted": trusted,
            }
        )
    else:
        for line in failures:
            echo(f"{describe_path(file)}: {line}")
        if not failures:
            rules, claims = len(certificate["rules"]), len(certificate["claims"])
            echo(f"holds: {claims} claims by {certificate['solver']}, {rules} rules by the ledger")
            echo(f"It is of the program whose text has the SHA-256 digest {certificate['program']}.")
            echo("It rests on:")
            for line in trusted:
                echo(f"  - {line}")
    ctx.exit(1 if failures else 0)


@contextmanager
def _raise_out_of_time_after(seconds: int) -> Iterator[None]:
    """Raise OutOfTime after `seconds`; the solver has a limit of its own, and this one covers the parser of texts."""
    from uops.compiler.validate.certificate import OutOfTime

    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def raise_out_of_time(number: int, frame: object) -> None:
        raise OutOfTime(f"not decided within {seconds} s")

    before = signal.signal(signal.SIGALRM, raise_out_of_time)
    signal.setitimer(signal.ITIMER_REAL, seconds + 1, 1)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def _shorten_reason(why: str) -> str:
    """Return a reason, which may contain names and lines of the file, as one line."""
    from uops.spec.untrusted import escape_unprintable

    first, *more = why.split("\n")
    return escape_unprintable(first)[:500] + (f" (and {len(more)} more)" if more else "")
