"""The installed distribution: the same files as the checkout, real ones, with the typing marker and the command."""

import os
from importlib.metadata import Distribution, distribution
from pathlib import Path

import pytest

import uops


@pytest.fixture(scope="module")
def installed(root: Path) -> Distribution:
    """The wheel that is under test; an import from the checkout is not one."""
    imported = Path(uops.__file__).resolve()
    if not imported.is_relative_to(root / "src"):
        return distribution("uops")
    assert "UOPS_TEST_INSTALLED" not in os.environ, f"the tests were to run on the installed wheel, not on {imported}"
    pytest.skip("uops is imported from the checkout, not from an installed wheel")


def test_the_wheel_holds_exactly_the_files_of_the_checkout(installed: Distribution, packaged: set[str]) -> None:
    files = {path.as_posix() for path in installed.files or () if path.parts[0] == "uops" and path.suffix != ".pyc"}
    assert files == packaged
    assert {"uops/py.typed", "uops/spec/ir/ops.py", "uops/__main__.py"} <= files


def test_the_installed_files_are_real_and_below_one_folder(installed: Distribution, packaged: set[str]) -> None:
    top = Path(uops.__file__).resolve().parents[1]
    for name in packaged:
        located = Path(str(installed.locate_file(name)))
        assert located.is_file(), name
        assert located.resolve().relative_to(top.resolve()).as_posix() == name


def test_the_distribution_installs_no_other_top_level_name(installed: Distribution) -> None:
    tops = {path.parts[0] for path in installed.files or () if not path.parts[0].startswith("..")}
    assert {top for top in tops if not top.endswith(".dist-info")} == {"uops"}


def test_the_metadata_carry_the_version_and_the_command(installed: Distribution) -> None:
    assert installed.version == uops.__version__
    commands = {point.name: point.value for point in installed.entry_points if point.group == "console_scripts"}
    assert commands == {"uops": "uops.cli:main"}
    assert installed.metadata["License-Expression"] == "Apache-2.0"
