"""Nothing tells anybody to ask a package index for this package's name, which is nobody's there, or somebody else's."""

from __future__ import annotations

import re
import shlex
import subprocess
from pathlib import Path

import pytest

from uops.spec import extras
from uops.spec.extras import find_source_checkout, install_command, list_extra_requirements

ROOT = Path(__file__).parents[2]
TEXTS = (".py", ".md", ".toml", ".ini", ".txt", ".cfg", ".yml", ".yaml", ".html", ".j2", ".sh", ".uops")
#: An installation or a dependency by the bare name.
BAD = re.compile(
    r"""\binstall\s+(?:-\S+\s+)*['"]?uops(?:\[|['"`\s,)]|$)"""
    r"""|dependencies\s*=\s*\[[^\]]*["']uops["'\[ =<>~]|deps\s*=.*:uops\}"""
)

DECLARED = [
    "numpy<3,>=2.2",
    'z3-solver==5.4.0.0; extra == "prove"',
    'pyopencl>=2025.1; extra == "opencl"',
    'pocl>=3.0; (sys_platform == "linux" and platform_machine == "x86_64") and extra == "opencl"',
]


def test_no_text_installs_the_bare_name() -> None:
    listed = subprocess.run(["git", "ls-files", "-co", "--exclude-standard"], cwd=ROOT, capture_output=True, text=True, check=False)
    names = listed.stdout.split("\n") if listed.returncode == 0 else [str(p.relative_to(ROOT)) for p in ROOT.rglob("*")]
    wrong = []
    for name in names:
        path = ROOT / name
        if (path.suffix in TEXTS or path.name == "run") and path != Path(__file__) and path.is_file():
            found = BAD.search(path.read_text(errors="replace"))
            wrong += [f"{name}: {found[0]}"] if found else []
    assert wrong == []


@pytest.mark.parametrize(
    "text",
    [
        "pip install uops",
        "pip install 'uops[c]'",
        "install uops[cluster]",
        "`pip install uops`",
        'dependencies = ["uops", "numpy"]',
    ],
)
def test_the_bare_name_would_be_seen(text: str) -> None:
    assert BAD.search(text)


def test_from_a_checkout_its_path_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(extras, "__file__", str(ROOT / "src" / "uops" / "spec" / "extras.py"))
    assert find_source_checkout() == ROOT
    assert shlex.split(install_command("test,prove")) == ["pip", "install", f"{ROOT}[test,prove]"]


def test_an_installed_package_names_what_its_extra_stands_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(extras, "find_source_checkout", lambda: None)
    monkeypatch.setattr(extras.metadata, "requires", lambda name: DECLARED)
    assert install_command("prove") == "pip install z3-solver==5.4.0.0"
    assert list_extra_requirements("opencl") == [
        "pyopencl>=2025.1",
        'pocl>=3.0; (sys_platform == "linux" and platform_machine == "x86_64")',
    ]
    assert not BAD.search(install_command("opencl")) and not BAD.search(install_command("nothing"))
