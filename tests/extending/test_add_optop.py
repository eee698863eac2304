"""Reverse, an OptOp that runs a loop backwards, is planted by the guide; each step left out is named with its file."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from planting import GUIDES, Insertion, plant, read_steps, run_check

STEPS = {step.number: step for step in read_steps("add-an-optop")}
#: The ruling that the guide states. No ruling of the tree has the number, so no source may spell it.
RULING = f"R{99}"
CLASS, SCHEDULES, PROOFS = "spec/optops.py", "compiler/passes/optimize", "compiler/prove"
DONE: dict[int, tuple[Insertion, ...]] = {
    1: (
        Insertion(
            "spec/rulings.md",
            "Padto takes any axis and a multiple >= 1, of which the axis may be one already; Swap needs two different axes |\n",
            f"| {RULING} | Reverse | extension: a LOOP, GLOBAL or REDUCE axis of constant extent runs backwards |\n",
        ),
    ),
    2: (
        Insertion(
            CLASS,
            'else f"N = {n} and M = {m} divide no two output axes for certain (R97)"\n',
            '''

@dataclass(frozen=True, slots=True)
class Reverse(OptOp):
    """An OptOp that runs an axis from its last iteration to its first."""

    row = OptRow("any", "-", "Runs an axis backwards.", printed=False)
    weight = 1

    axis: int

    def find_illegality(self, context: OptOpContext) -> str | None:
        """Return why the axis forbids the Reverse, or None."""
        if not 0 <= self.axis < len(context.axes):
            return f"there is no axis {self.axis} (R95)"
        axis = context.axes[self.axis]
        if axis.type not in TILED:
            return f"{axis.type.name} axes are not reversed ({RULING})"
        return None if isinstance(axis.extent, int) else f"the extent of axis {self.axis} is symbolic ({RULING})"

    def change_axes(self, axes: list[Axis]) -> list[Axis]:
        """Return the axes as they are."""
        return axes

    @classmethod
    def draw_candidate(cls, axes: Sequence[Axis], source: ChoiceSource) -> Reverse:
        """Draw an axis."""
        return cls(source.integer(0, len(axes) - 1))
'''.replace("{RULING}", RULING),
        ),
    ),
    3: (Insertion(CLASS, "= (Split, Padto, Swap, Nolocals, TC", ", Reverse"),),
    4: (
        Insertion(f"{SCHEDULES}/schedule/optops.py", "from uops.spec.optops import TC, ", "Reverse, "),
        Insertion(
            f"{SCHEDULES}/schedule/optops.py",
            "return replace(swapped, ordered_ids=s.ordered_ids ^ ids) if len(s.ordered_ids & ids) == 1 else swapped\n",
            """

def _explain_reverse_conflict(s: Schedule, opt: Reverse, machine: MachineModel) -> str | None:
    if s.ranges[opt.axis].arg.axis_id in s.ordered_ids:
        return f"iterations of axis {opt.axis} may meet in one element (R57, {RULING})"
    return _explain_accumulator_conflict(s, opt.axis)


def _apply_reverse(s: Schedule, opt: Reverse, machine: MachineModel) -> Schedule:
    r = s.ranges[opt.axis]
    backwards = UOp(Op.ADD, (index_constant(s.axes[opt.axis].extent - 1), UOp(Op.MUL, (r, index_constant(-1)))))
    return replace_schedule_ranges(s, {r: (backwards, (r,))})
""".replace("{RULING}", RULING),
        ),
        Insertion(
            f"{SCHEDULES}/schedule/optops.py",
            "    TC: OptOpApplication(_apply_tensor_core, _explain_tensor_core_mismatch),\n",
            "    Reverse: OptOpApplication(_apply_reverse, _explain_reverse_conflict),\n",
        ),
    ),
    5: (
        Insertion(f"{SCHEDULES}/search/beam.py", "from uops.spec.optops import TC, ", "Reverse, "),
        Insertion(
            f"{SCHEDULES}/search/beam.py",
            "    Nolocals: _propose_nothing,  # it changes no kernel\n",
            "    Reverse: _propose_nothing,  # it saves no time\n",
        ),
    ),
    6: (
        Insertion(f"{SCHEDULES}/search/random_schedules.py", "from uops.spec.optops import TC, ", "Reverse, "),
        Insertion(
            f"{SCHEDULES}/search/random_schedules.py",
            "    return None if Nolocals() in s.done else Nolocals()\n",
            """

def _make_reverse(s: Schedule, kind: OptOpKind, k: int, amount: int, rng: random.Random) -> Reverse:
    return Reverse(k)
""",
        ),
        Insertion(
            f"{SCHEDULES}/search/random_schedules.py",
            "    Nolocals: OptOpDraw((OptOpKind(Nolocals),), _make_nolocals),\n",
            "    Reverse: OptOpDraw((OptOpKind(Reverse, AxisType.LOOP), OptOpKind(Reverse, AxisType.REDUCE)), _make_reverse),\n",
        ),
    ),
    7: (
        Insertion("fuzz/generate/schedules.py", "from uops.spec.optops import (\n", "    Reverse,\n"),
        Insertion(
            "fuzz/generate/schedules.py",
            "    return TC(draw.integer(-1, 3), draw.choice((-2, 5)), draw.choice((-1, 3)), draw.choice((0, 3)))\n",
            """

def _draw_reverse_of_wrong_type(axes: Sequence[Axis], draw: SeededDraw) -> OptOp:
    return Reverse(draw.choice([-1, len(axes), len(axes) + 7, *(k for k, a in enumerate(axes) if a.type in UNROLLED)]))
""",
        ),
        Insertion("fuzz/generate/schedules.py", "_draw_invalid_tensor_core,\n", "    _draw_reverse_of_wrong_type,\n"),
    ),
    8: (
        Insertion(f"{PROOFS}/optops.py", "from uops.spec.optops import TC, ", "Reverse, "),
        Insertion(
            f"{PROOFS}/optops.py",
            '    Rule("swap-stays-inside", _within(j * n + i, m * n), true, when=_within(i, n) & _within(j, m)),\n)\n',
            """
#: Reverse: the iteration of the old loop.
REVERSED = (n - 1) + i * -1
REVERSES = (
    Rule("reverse-stays-inside", _within(REVERSED, n), true, when=_within(i, n)),
    Rule("reverse-twice", (n - 1) + REVERSED * -1, i),
)
""",
        ),
        Insertion(f"{PROOFS}/optops.py", "    TC: LANES,\n", "    Reverse: REVERSES,\n"),
    ),
    9: (),
}
#: Proves the laws of a planted package and writes its ledger.
PROVE = """
import sys
from pathlib import Path
from uops.compiler.prove import ledger, optops
from uops.compiler.prove.admission import is_rule_in_ledger
from uops.compiler.prove.campaign import prove_rules

pages = ledger.read_ledger()
laws = [law for law in optops.RULES if not is_rule_in_ledger(law)]
report = prove_rules(laws, proved_entries_by_key=ledger.index_proved_entries(pages))
assert report.ok
ledger.write_ledger((pages | report.pages).values(), Path(sys.argv[1]))
"""


@pytest.fixture(scope="module")
def ledger(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The ledger with the laws of Reverse, as `uops prove` writes it."""
    folder = tmp_path_factory.mktemp("proofs")
    planted, path = plant(folder / "package", DONE), folder / "ledger.jsonl"
    environment = {**os.environ, "PYTHONPATH": str(planted)}
    subprocess.run([sys.executable, "-c", PROVE, str(path)], env=environment, check=True, timeout=120)
    return path.read_text(encoding="utf-8")


#: Step -> the file that its check names.
FILES = {
    1: "spec/rulings.md",
    2: CLASS,
    3: CLASS,
    4: f"{SCHEDULES}/schedule/optops.py",
    5: f"{SCHEDULES}/search/beam.py",
    6: f"{SCHEDULES}/search/random_schedules.py",
    7: "fuzz/generate/schedules.py",
    8: f"{PROOFS}/optops.py",
    9: f"{PROOFS}/ledger.jsonl",
}


def plant_without(folder: Path, ledger: str, left_out: int | None = None) -> Path:
    """The package with Reverse, but for one step."""
    return plant(folder, DONE, left_out, {} if left_out == 9 else {FILES[9]: ledger})


def test_the_guide_names_the_files() -> None:
    assert sorted(STEPS) == sorted(FILES)
    guide = (GUIDES / "add-an-optop.md").read_text(encoding="utf-8")
    parts = dict(enumerate(guide.split("\n## ")))
    assert [k for k, file in FILES.items() if f"`{file}`" not in parts[k]] == []


@pytest.mark.parametrize("left_out", sorted(FILES))
def test_a_step_that_is_left_out_is_named(left_out: int, ledger: str, tmp_path: Path) -> None:
    passed, text = run_check(plant_without(tmp_path / "package", ledger, left_out), STEPS[left_out].check)
    assert not passed
    assert re.search(rf"^E .*{FILES[left_out]}: |{FILES[left_out]}:\d+: in <module>\nE? ", text, re.MULTILINE), text


def test_with_all_steps_every_check_passes(ledger: str, tmp_path: Path) -> None:
    """Reverse is drawn, spelt and parsed; a kernel with it gives what the interpreter gives; its laws are proved."""
    whole = "tests/fuzz/generate/test_drawn_optops.py"
    passed, text = run_check(plant_without(tmp_path / "package", ledger), *(s.check for s in STEPS.values()), whole, "-rp")
    assert passed, text
    assert len(re.findall(r"^PASSED .*\[Reverse\]$", text, re.MULTILINE)) == 2, text
