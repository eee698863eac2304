"""Kinds of programs for a campaign that is directed at some lines of the package.

A first process tries every kind for some seconds (`uops.fuzz.reach.try_kinds`). A directed campaign then spends its time on the
kinds whose cases ran the lines, in proportion to the share of their cases that did.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from uops.fuzz.generate.kinds import KINDS

#: Maximum number of times that a directed campaign names a kind.
_MOST = 12


class KindTrial(NamedTuple):
    """The cases of a kind that were tried, those of them that ran the lines, and their processor seconds."""

    cases: int = 0
    reached: int = 0
    seconds: float = 0.0


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
    """Return the kinds of a directed campaign, each as often as a `Setup` is to name it; empty if no direction is known.

    None is known if no case, or the cases of all kinds alike, ran the lines.
    """
    shares = {kind: t.reached / t.cases for kind, t in trials.items() if t.cases and t.reached}
    if not shares or (len(shares) == len(kinds) and min(shares.values()) > max(shares.values()) / 2):
        return ()
    # A case of a kind takes its mean seconds, and a campaign draws a kind as often as its weight says.
    frequencies = {k: s / (max(trials[k].seconds / trials[k].cases, 1e-3) * KINDS[k].weight) for k, s in shares.items()}
    most = max(frequencies.values())
    return tuple(kind for kind, f in frequencies.items() for _ in range(max(1, round(_MOST * f / most))))


__all__ = ["KindTrial", "add_trial_of_ended_process", "direct_kinds", "read_trials"]
