"""Every page that a command writes fits a narrow window: what is wider scrolls by itself, and the page does not."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

from uops.fuzz.campaign.campaign import Summary
from uops.fuzz.campaign.examine import Setup
from uops.fuzz.campaign.report import write_campaign_report as write_fuzz
from uops.fuzz.mutants.catalogue import Mutant, load_mutants_by_id_or_class
from uops.fuzz.mutants.hunt import Kill
from uops.fuzz.mutants.report import write_report as write_mutants
from uops.fuzz.mutants.run import MutantResult as Hunt
from uops.fuzz.mutants.run import MutantRun

Uops = Callable[..., Result]
WIDTH = 400


def conformance(uops: Uops, suite: Any) -> Path:
    uops("conform", "-b", "interp")
    return Path("report/index.html")


def site(uops: Uops, suite: Any) -> Path:
    uops("conform", "-b", "interp")
    assert uops("site", "report", "-o", "out", "--title", "All of them").stdout == "out/index.html\n"
    return Path("out/index.html")


def compare(uops: Uops, suite: Any) -> Path:
    return site(uops, suite).with_name("compare.html")


def fuzz(uops: Uops, suite: Any) -> Path:
    Path("fuzzed").mkdir()
    write_fuzz(Summary(Setup("planted"), "planted 1", 64), Path("fuzzed"))
    return Path("fuzzed/index.html")


class Hunted(MutantRun):
    """A run that has seen every mutant by golden files, and none by answers."""

    def read_results_from_journal(self, mutants: Iterable[Mutant]) -> list[Hunt]:
        return [Hunt(m, Kill("goldens", "value", 1.5, 32, 3), None, 16, {}) for m in mutants]


def mutants(uops: Uops, suite: Any) -> Path:
    write_mutants(Hunted(load_mutants_by_id_or_class(), Path("hunted"), seconds=5), load_mutants_by_id_or_class())
    return Path("hunted/index.html")


def view(uops: Uops, suite: Any) -> Path:
    Path("x.uops").write_text("%0 = param (2, 3), slot=0 : f32\n%1 = neg %0\n")
    uops("view", "x.uops")
    return Path("x.html")


@pytest.mark.parametrize("make", [conformance, site, compare, fuzz, mutants, view], ids=lambda f: f.__name__)
def test_a_page_does_not_scroll_sideways_at_400_pixels(
    make: Callable[[Uops, Any], Path], uops: Uops, suite: Any, dump: Callable[[str], str], tmp_path: Path
) -> None:
    """A frame is as narrow as it is told to be, which the window of a browser is not."""
    page = make(uops, suite).resolve()
    frame = tmp_path / "frame.html"
    frame.write_text(
        f'<body><iframe src="{page.as_uri()}" style="width:{WIDTH}px;height:800px;border:0"></iframe>'
        "<script>addEventListener('load', () => setTimeout(() => { const d = frames[0].document.documentElement;"
        " document.title = `${d.scrollWidth} in ${d.clientWidth}`; }, 500));</script>"
    )
    found = re.search(r"<title>(\d+) in (\d+)</title>", dump(frame.as_uri()))
    assert found and int(found[1]) <= int(found[2]) <= WIDTH, found


@pytest.mark.parametrize(
    ("words", "dtypes"),
    [("Elementwise/And", "bool i8 i16 i32 i64 u8 u16 u32 u64"), ("Movement/Flip", "bool i64 u8 bf16 f32")],
)
def test_a_column_that_a_filter_leaves_empty_is_not_shown(
    words: str, dtypes: str, uops: Uops, dump: Callable[[str], str], tmp_path: Path
) -> None:
    """The rows of both hold exact values, so that none has a distance."""
    uops("conform", "-b", "interp", "--rows", "*/[AF][nl][di]*")
    page = tmp_path / "report/index.html"
    script = f"""<script>
        const input = document.getElementById("filter"); input.value = "{words}"; input.dispatchEvent(new Event("input"));
        const heads = [...document.querySelector("th.corner").parentElement.children].filter((th) => !th.hidden);
        document.title = heads.map((th) => th.textContent).join(" ");
        </script></body>"""
    page.write_text(page.read_text().replace("</body>", script))
    assert f"<title>Row {dtypes}</title>" in dump(page.as_uri())
