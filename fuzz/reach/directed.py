"""Kinds of programs for a campaign that is directed at some lines of the package.

A first process tries every kind for some seconds (`uops.fuzz.reach.try_kinds`). A directed campaign then spends its time on the
kinds whose cases ran the lines, in proportion to the share of their cases that did.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from uops.fuzz.campaign.examine import Setup
from uops.fuzz.generate.kinds import KINDS

#: Processor seconds for which a kind is tried.
TRYING = 1.5
#: Maximum number of times that a directed campaign names a kind.
_MOST = 12


class KindTrial(NamedTuple):
    """The cases of a kind that were tried, those of them that ran the lines, and their processor seconds."""

    cases: int = 0
    reached: int = 0
    seconds: float = 0.0


def try_kinds(kinds: Sequence[str], run_process: Callable[[Sequence[str]], tuple[bool, Iterable[str]]]) -> dict[str, KindTrial]:
    """Try each kind; go on behind the kind whose case ended a process.

    `run_process` runs `uops.fuzz.reach.try_kinds` on some kinds, and returns whether it ended well, and what it printed. It prints
    nothing if the package does not start or no line can be recorded; then the trials so far are returned.
    """
    trials: dict[str, KindTrial] = {}
    while rest := [k for k in kinds if k not in trials]:
        ended_well, printed = run_process(rest)
        tried = read_trials(printed)
        if not tried:
            break
        trials |= tried if ended_well else add_trial_of_ended_process(tried)
    return trials


def try_kinds_in_processes(setup: Setup, lines: Mapping[str, Sequence[int]]) -> dict[str, KindTrial]:
    """Try each kind of a set-up on this package, for `TRYING` seconds each. `lines` are those of modules that are to run."""

    def run_process(kinds: Sequence[str]) -> tuple[bool, Iterable[str]]:
        document = json.dumps(replace(setup, kinds=tuple(kinds)).to_json())
        command = [sys.executable, "-m", "uops.fuzz.reach.try_kinds", document, json.dumps(dict(lines)), str(TRYING)]
        path = os.pathsep.join([*setup.path, *filter(None, [os.environ.get("PYTHONPATH")])])
        done = subprocess.run(
            command, env={**os.environ, "PYTHONPATH": path, "UOPS_CACHE": "0"}, stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, check=False,
        )  # fmt: skip
        return done.returncode == 0, done.stdout.splitlines()

    return try_kinds(setup.kinds, run_process)


def read_trials(lines: Iterable[str]) -> dict[str, KindTrial]:
    """Return the trials that `uops.fuzz.reach.try_kinds` printed, by kind. Lines of other texts are passed over."""
    trials: dict[str, KindTrial] = {}
    for line in lines:
        try:
            entry = json.loads(line)
            trial = trials.setdefault(entry["kind"], KindTrial())
            if "seconds" in entry:
                trials[entry["kind"]] = KindTrial(
                    trial.cases + 1, trial.reached + entry["reached"], trial.seconds + entry["seconds"]
                )
        except (ValueError, TypeError, LookupError):  # a message of a library
            continue
    return trials


def add_trial_of_ended_process(trials: Mapping[str, KindTrial]) -> dict[str, KindTrial]:
    """Count the case that ended its process, which is of the last kind, as one that ran the lines."""
    kind, trial = list(trials.items())[-1]
    return {**trials, kind: KindTrial(trial.cases + 1, trial.reached + 1, trial.seconds)}


def direct_kinds(trials: Mapping[str, KindTrial], kinds: Sequence[str]) -> tuple[str, ...]:
    """Return the kinds of a directed campaign, each as often as a `Setup` is to name it; empty if none was tried.

    If no case ran the lines, or the cases of all kinds alike, each kind gets the same time: on a backend where some kinds are slow,
    these would otherwise take the time of the others.
    """
    shares = {kind: t.reached / t.cases for kind, t in trials.items() if t.cases and t.reached}
    if not shares or (len(shares) == len(kinds) and min(shares.values()) > max(shares.values()) / 2):
        shares = {kind: 1.0 for kind, t in trials.items() if t.cases}
    # A case of a kind takes its mean seconds, and a campaign draws a kind as often as its weight says.
    frequencies = {k: s / (max(trials[k].seconds / trials[k].cases, 1e-3) * KINDS[k].weight) for k, s in shares.items()}
    most = max(frequencies.values(), default=1.0)
    return tuple(kind for kind, f in frequencies.items() for _ in range(max(1, round(_MOST * f / most))))


__all__ = ["KindTrial", "add_trial_of_ended_process", "direct_kinds", "read_trials", "try_kinds", "try_kinds_in_processes"]
