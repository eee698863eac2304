"""`uops site`: write a static site of conformance reports."""

from __future__ import annotations

import click

from uops.cli.common import echo


@click.command(short_help="Write a site of conformance reports.")
@click.argument("reports", nargs=-1, required=True, metavar="REPORT...", type=click.Path())
@click.option("--output", "-o", "directory", default="site", show_default=True, metavar="DIR", help="Directory of the site.")
@click.option(
    "--level",
    type=click.Choice(["strict", "core"]),
    default="strict",
    show_default=True,
    help="Level of badges, trends and the comparison.",
)
@click.option("--title", default="Conformance", show_default=True, help="Title of the pages.")
def site(reports: tuple[str, ...], directory: str, level: str, title: str) -> None:
    """Write a static site of the reports that `uops conform` wrote.

    A REPORT is a report.json, or a directory with reports in it or below it. The site has the scores of all subjects, and a badge
    for each. It shows their rows side by side, and a trend where there are several reports of one subject.

    Reports are of one trend if they are about the same subject, tier, rows, dialect, sample and schedules. Prints the path of the
    index.
    """
    from uops.backends.conformance.model import ConformanceLevel
    from uops.backends.conformance.report.site import read_series, write_site
    from uops.spec.untrusted import describe_path

    echo(describe_path(write_site(read_series(reports), directory, ConformanceLevel(level), title)))
