"""`python -m uops.fuzz.reach REPORT...`: name the functions that no case of these campaigns reached.

Each REPORT is the directory of a report of `uops fuzz --reach`. A function counts as reached if one of them reached it. Exit
status 1 if one was not, 2 if a report cannot be read or has no counts of functions.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from pathlib import Path
from typing import NamedTuple

from uops.fuzz.reach.functions import list_functions

UNREADABLE = 2


class Reach(NamedTuple):
    """Functions with their places, and the numbers of cases that reached them."""

    places: dict[str, str]
    cases: Counter[str]

    def list_unreached(self) -> list[str]:
        """Return the functions that no case reached."""
        return sorted(f for f in self.places if not self.cases[f])


class NoReach(Exception):
    """A report that says nothing of the functions that its cases reached."""


def read_reach(report_directories: list[Path]) -> Reach:
    """Return what the campaigns of some reports reached together. Raises NoReach."""
    places: dict[str, str] = {}
    cases: Counter[str] = Counter()
    for directory in report_directories:
        path = directory / "report.json"
        try:
            report = json.loads(path.read_text())
            backend, reached = report["setup"]["backend"], report["coverage"]["reached"]
        except (OSError, ValueError) as e:
            raise NoReach(f"{path}: no report can be read: {e}") from None
        except (KeyError, TypeError):
            raise NoReach(f"{path}: it has no counts of functions; run the campaign with --reach") from None
        places |= list_functions(backend)
        cases.update(reached)
    return Reach(places, cases)


def main(arguments: list[str]) -> int:
    """Print the functions that were not reached, and return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m uops.fuzz.reach", description=__doc__.splitlines()[0].partition(": ")[2])
    parser.add_argument("reports", nargs="+", metavar="REPORT", type=Path)
    try:
        reach = read_reach(parser.parse_args(arguments).reports)
    except NoReach as e:
        print(e, file=sys.stderr)
        return UNREADABLE
    unreached = reach.list_unreached()
    for f in unreached:
        print(f"{reach.places[f]}  {f.partition(':')[2]}")
    print(f"{len(reach.places) - len(unreached)} of {len(reach.places)} functions were reached")
    return int(bool(unreached))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
