"""`uops view` writes one page that needs nothing else, shows every stage, and lights up a node through all of them; `uops compile`
prints passes and the steps of rules. The page is judged as text by a parser, and in a browser where one is installed."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

from uops.cli.viewer import columns
from uops.cli.viewer.page import FAMILIES
from uops.compiler import STAGES
from uops.spec import build as b
from uops.spec import dtypes as dt
from uops.spec.axes import AxisType
from uops.spec.node import UOp
from uops.spec.ops import Op
from uops.spec.rows import ROWS
from uops.spec.text import number, parse, show

Uops = Callable[..., Result]
BROWSER = next((p for name in ("chromium", "chromium-browser", "google-chrome") if (p := shutil.which(name))), None)
SHOWN = ("tensor", *STAGES[:-1], "source")
VOID = frozenset({"meta", "input", "link", "br", "img", "hr"})


class Read(HTMLParser):
    """The elements of a page: attributes by id, and those of every element by tag; `open` holds what was never closed."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str]]] = []
        self.text: dict[int, str] = {}
        self.open: list[tuple[str, int]] = []
        self.wrong: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, {k: v or "" for k, v in attrs}))
        if tag not in VOID:
            self.open.append((tag, len(self.elements) - 1))

    def handle_endtag(self, tag: str) -> None:
        if not self.open or self.open.pop()[0] != tag:
            self.wrong.append(tag)

    def handle_data(self, data: str) -> None:
        for _, k in self.open:
            self.text[k] = self.text.get(k, "") + data

    def where(self, **wanted: str) -> list[tuple[dict[str, str], str]]:
        """(attributes, text) of the elements with these attributes."""
        return [
            (attrs, self.text.get(k, ""))
            for k, (_, attrs) in enumerate(self.elements)
            if all(attrs.get(name.strip("_")) == value for name, value in wanted.items())
        ]

    def classes(self, name: str) -> list[tuple[dict[str, str], str]]:
        return [(a, self.text.get(k, "")) for k, (_, a) in enumerate(self.elements) if name in a.get("class", "").split()]


def shown(uops: Uops, graph: UOp, name: str = "x.uops") -> str:
    Path(name).write_text(show(graph), encoding="utf-8")
    result = uops("view", name, "-o", "out.html")
    assert result.exit_code == 0 and result.output == "out.html\n", result.output
    return Path("out.html").read_text(encoding="utf-8")


def data_of(text: Read) -> dict[str, Any]:
    ((_, content),) = text.where(id="data")
    found: dict[str, Any] = json.loads(content)
    return found


def rows(flat: list[int]) -> list[tuple[int, int, int, int]]:
    return list(zip(*(flat[k::4] for k in range(4)), strict=True))


def softmax(width: int = 8) -> UOp:
    x = b.param(0, (4, width), dt.float32)
    e = b.contiguous(b.exp2(b.sub(x, b.expand(b.reduce(x, Op.MAX, (1,)), (4, width)))))
    return b.div(e, b.expand(b.reduce(e, Op.ADD, (1,)), (4, width)))


def long_program(nodes: int) -> UOp:
    """About so many nodes, with a kernel for every few of them."""
    x = b.param(0, (8, 8), dt.float32)
    k = 0
    while len(number(x)) < nodes:
        k += 1
        x = b.add(b.mul(x, b.const(k / 7, dt.float32)), b.permute(x, (1, 0)))
        x = b.contiguous(b.sqrt(x)) if k % 5 == 0 else b.where(b.lt(x, 0.5), x, b.neg(x))
    return x


# ------------------------------------------------------------------------------------------------------------- the file


def test_the_page_is_well_formed_and_needs_nothing_but_itself(uops: Uops) -> None:
    text = shown(uops, softmax())
    found = Read(text)
    assert not found.wrong and not found.open
    outside = [a for _, a in found.elements if {"src", "href", "srcset", "action"} & a.keys()]
    assert outside == []
    assert not re.search(r"https?://|@import|url\(", text)


def test_there_is_a_column_per_stage_in_order(uops: Uops) -> None:
    found = Read(shown(uops, softmax()))
    assert tuple(a["aria-label"] for a, _ in found.classes("column")) == SHOWN
    assert data_of(found)["stages"] == list(SHOWN)


def test_every_node_has_a_line_of_its_text(uops: Uops) -> None:
    graph = softmax()
    found = Read(shown(uops, graph))
    lines = {a["id"]: text for a, text in found.where(role="option")}
    assert len(lines) == len(found.where(role="option"))
    for k, u in enumerate(number(graph)):
        assert lines[f"s0n{k}"].startswith(f"%{k} {u.op.name.lower()} ")
    data = data_of(found)
    for stage, size in enumerate(data["sizes"]):
        own = [i for i in lines if i.startswith(f"s{stage}n")]
        assert len(own) == (0 if data["same"][stage] else size)


def test_links_join_lines_of_neighbouring_columns_and_name_causes(uops: Uops) -> None:
    data = data_of(Read(shown(uops, softmax())))
    sizes = data["sizes"]
    assert len(data["links"]) == len(sizes) - 1
    for k, flat in enumerate(data["links"]):
        for source, target, made, causes in rows(flat):
            assert 0 <= source < sizes[k] and 0 <= target < sizes[k + 1] and made in (0, 1)
            assert all(step == -1 or data["steps"][step][0] in data["rules"] for _, step in data["causes"][causes])
        assert {target for _, target, _, _ in rows(flat)} == set(range(sizes[k + 1]))
    sine = data_of(Read(shown(uops, UOp(Op.SIN, (b.param(0, (8,), dt.float32),)))))
    assert "ranges" in {by for cause in data["causes"] for by, _ in cause}
    assert "decompose" in {by for cause in sine["causes"] for by, _ in cause}


def test_lines_carry_the_colour_of_their_family_and_axis_type(uops: Uops) -> None:
    found = Read(shown(uops, softmax()))
    for a, text in found.where(role="option"):
        op = Op[text.split()[1].upper()]
        axis = re.search(r"type=(\w+)", text)
        assert a["class"] == (f"a-{axis[1]}" if op is Op.RANGE and axis else f"f-{columns.family_of(op)}")
    style = (Path(columns.__file__).parent / "page.css").read_text()
    assert all(f".f-{columns.family_of(op)} " in style for op in ROWS)
    assert all(re.search(rf"\.a-{t.name.lower()}\b", style) for t in AxisType)
    assert {columns.family_of(op) for op in ROWS} <= {*FAMILIES, "bestiary"}


def test_each_kernel_has_a_group_and_can_be_chosen(uops: Uops) -> None:
    found = Read(shown(uops, softmax()))
    groups = [a["aria-label"] for a, _ in found.classes("group")]
    names = [n for n in dict.fromkeys(groups) if n != "program"]
    assert len(names) > 1
    options = [text for a, text in found.where() if a.get("value", "").isdigit()]
    assert options == [f"{k}: {n}" for k, n in enumerate(names)]


def test_source_is_shown_as_the_renderer_gave_it(uops: Uops) -> None:
    found = Read(shown(uops, softmax()))
    sources = [text for (tag, _), text in zip(found.elements, map(found.text.get, range(len(found.elements)))) if tag == "pre"]
    assert sources and all(text and "define" in text for text in sources)


def test_text_of_a_program_is_never_markup(uops: Uops) -> None:
    hostile = "</script><script>alert(1)</script><b>"
    graph = b.neg(UOp(Op.PARAM, (b.shape_vector((2,)),), b.param(0, (2,), dt.float32).arg.__class__(0, dt.float32, hostile)))
    found = Read(shown(uops, graph, "a<b>&.uops"))
    assert not found.wrong
    assert sum(tag == "script" for tag, _ in found.elements) == 2
    assert any(hostile in text for _, text in found.where(role="option"))


def test_without_output_the_page_is_named_after_the_program(uops: Uops, program: str, tmp_path: Path) -> None:
    assert uops("view", program).output == "program.html\n"
    assert (tmp_path / "program.html").stat().st_size > 10_000


def test_view_refuses_what_it_cannot_lower(uops: Uops, program: str, broken: str) -> None:
    result = uops("view", broken)
    assert result.exit_code == 2 and "PAD.C2" in result.stderr
    result = uops("view", program, "-b", "interp")
    assert result.exit_code == 2 and "is no target of the compiler" in result.stderr


def test_a_program_of_500_nodes_gives_a_page_of_a_few_megabytes(uops: Uops) -> None:
    graph = long_program(500)
    text = shown(uops, graph)
    assert len(number(graph)) >= 500
    assert len(text) < 6_000_000
    assert text.count("<") < 250_000


# -------------------------------------------------------------------------------------------------- passes and the log


@pytest.mark.parametrize("name", [*STAGES[:-1], "accumulate", "widths", "decompose", "simplify"])
def test_compile_prints_any_pass_as_text_that_parses(uops: Uops, program: str, name: str) -> None:
    result = uops("compile", program, "-b", "llvm", "--pass", name)
    assert result.exit_code == 0, result.output
    if name in STAGES:
        assert result.output == uops("compile", program, "-b", "llvm", "--stage", name).output
    assert parse(result.output).op in (Op.LINEAR, Op.CALL)


def test_the_steps_of_selection_show_their_work(uops: Uops, program: str) -> None:
    before, after = (uops("compile", program, "-b", "llvm", "--pass", name).output for name in ("expand", "accumulate"))
    assert "= reduce " in before and "= reduce " not in after


def test_compile_with_an_unknown_pass_lists_the_passes(uops: Uops, program: str) -> None:
    result = uops("compile", program, "-b", "llvm", "--pass", "fuse")
    assert result.exit_code == 2 and "callify, rangeify, join, optimize" in result.stderr and "accumulate, widths" in result.stderr


def test_compile_logs_every_application_of_a_rule(uops: Uops) -> None:
    Path("x.uops").write_text(show(b.mul(b.cast(b.param(0, (3,), dt.float32), dt.int32), 1)))
    result = uops("compile", "x.uops", "-b", "llvm", "--log")
    (step,) = (s for s in map(json.loads, result.output.splitlines()) if s["rule"] == "mul-one")
    assert parse(step["before"]).op is Op.MUL and parse(step["before"]).src[0] is parse(step["after"])
    assert parse(step["where"]["x"]) is parse(step["after"])


# ------------------------------------------------------------------------------------------------------------- browser


def browse(text: str, where: Path, script: str = "", fragment: str = "") -> Read:
    """The page as a browser leaves it, after `script` has run in it."""
    if BROWSER is None:
        pytest.skip("no browser is installed: neither chromium nor google-chrome is on PATH")
    place = where / "browsed.html"
    place.write_text(text.replace("</body>", f"<script>{script}</script></body>"), encoding="utf-8")
    sandbox = ["--no-sandbox"] if os.geteuid() == 0 else []
    options = [
        "--headless",
        "--disable-gpu",
        "--virtual-time-budget=4000",
        "--window-size=1800,1000",
        f"--user-data-dir={where / 'profile'}",
    ]
    done = subprocess.run(
        [BROWSER, *sandbox, *options, "--dump-dom", f"{place.as_uri()}{fragment}"], capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    return Read(done.stdout)


def lit(found: Read, *, direct: bool = False) -> set[str]:
    """The columns in which a line is lit."""
    lines = found.classes("on") if direct else found.classes("on") + found.classes("made")
    return {SHOWN[int(a["id"][1 : a["id"].index("n")])] for a, _ in lines if "id" in a}


def line_with(text: str, stage: int, op: str) -> str:
    return next(a["id"] for a, t in Read(text).where(role="option") if a["id"].startswith(f"s{stage}n") and t.split()[1] == op)


def test_a_link_to_a_node_lights_it_up_in_every_open_stage(uops: Uops, tmp_path: Path) -> None:
    text = shown(uops, softmax())
    target = line_with(text, 0, "div")
    found = browse(text, tmp_path, fragment=f"#{target}")
    assert [a["id"] for a, _ in found.where(aria_selected="true")] == [] and [
        a["id"] for a, _ in found.where(role="option") if a["aria-selected"] == "true"
    ] == [target]
    assert lit(found) >= {"tensor", "callify", "rangeify", "select", "linearize"}
    ((_, panel),) = found.where(id="panel")
    assert "tensor → callify" in panel and "became" in panel and "no recorded link: the renderer gives text" in panel


def test_lit_lines_are_scrolled_into_view(uops: Uops, tmp_path: Path) -> None:
    text = shown(uops, long_program(200))
    script = (
        f"document.getElementById('{line_with(text, 0, 'permute')}').click(); setTimeout(() => {{"
        "const seen = (el) => { const r = el.getBoundingClientRect(), b = el.closest('.lines').getBoundingClientRect();"
        " return r.height > 0 && r.top >= b.top && r.bottom <= b.bottom; };"
        "document.title = [...document.querySelectorAll('.column:not(.shut)')].filter((c) => c.querySelector('.on'))"
        ".map((c) => `${c.getAttribute('aria-label')} ${[...c.querySelectorAll('.on')].some(seen)}`).join(', '); }, 1000);"
    )
    found = browse(text, tmp_path, script)
    title = next(found.text[k] for k, (tag, _) in enumerate(found.elements) if tag == "title")
    assert title.startswith("tensor true, callify true, rangeify true") and "false" not in title


def test_a_click_chooses_a_node_and_names_the_rule_that_changed_it(uops: Uops, tmp_path: Path) -> None:
    text = shown(uops, b.mul(b.cast(b.param(0, (3,), dt.float32), dt.int32), 1))
    target = line_with(text, 0, "mul")
    found = browse(text, tmp_path, f"document.getElementById('{target}').click()")
    assert lit(found, direct=True) >= {"tensor", "callify", "rangeify"}
    ((_, panel),) = found.where(id="panel")
    assert "mul-one" in panel and "(x * 1) -> x" in panel and "before" in panel and "after" in panel


def test_a_second_click_or_escape_lets_go(uops: Uops, tmp_path: Path) -> None:
    text = shown(uops, softmax())
    line = f"const el = document.getElementById('{line_with(text, 0, 'exp2')}'); el.click();"
    again = "el.click();"
    escape = "document.dispatchEvent(new KeyboardEvent('keydown', { key: 'Escape', bubbles: true }));"
    for script in (line + again, line + escape):
        found = browse(text, tmp_path, script)
        assert lit(found) == set()
        assert "Choose a node" in found.where(id="panel")[0][1]


def test_keys_walk_lines_and_stages_and_choose(uops: Uops, tmp_path: Path) -> None:
    text = shown(uops, softmax())
    press = (
        "const press = (key) => document.activeElement.dispatchEvent(new KeyboardEvent('keydown', { key, bubbles: true }));"
        f"document.getElementById('{line_with(text, 0, 'exp2')}').focus();"
    )
    found = browse(text, tmp_path, f"{press} press('ArrowRight'); press('ArrowDown'); press('ArrowUp'); press('Enter');")
    (chosen,) = (t for a, t in found.where(role="option") if a["aria-selected"] == "true")
    assert chosen.split()[1] == "exp2"
    assert {a["id"][:2] for a, _ in found.where(role="option") if a["aria-selected"] == "true"} == {"s1"}
    found = browse(text, tmp_path, f"{press} press('j'); press('j');")
    hidden = {a["data-kernel"] for a, _ in found.classes("group") if "hidden" in a}
    assert hidden and "1" not in hidden


def test_a_column_that_is_as_before_opens_with_the_same_lines(uops: Uops, tmp_path: Path) -> None:
    text = shown(uops, b.neg(b.param(0, (3,), dt.float32)))
    data = data_of(Read(text))
    k = data["same"].index(True)
    found = browse(text, tmp_path, f"document.querySelector('.toggles [data-column=\"{k}\"]').click()")
    before, same = ([t for a, t in found.where(role="option") if a["id"].startswith(f"s{j}n")] for j in (k - 1, k))
    assert same and same == before


def test_the_filter_leaves_only_lines_with_its_words(uops: Uops, tmp_path: Path) -> None:
    text = shown(uops, softmax())
    found = browse(
        text, tmp_path, "const f = document.getElementById('filter'); f.value = 'EXP2'; f.dispatchEvent(new Event('input'));"
    )
    lines = found.where(role="option")
    assert lines and all(("exp2" in t) is ("out" not in a["class"].split()) for a, t in lines)


def test_direct_links_only_lights_no_line_that_was_made_beside(uops: Uops, tmp_path: Path) -> None:
    text = shown(uops, softmax())
    target = line_with(text, 0, "exp2")
    found = browse(text, tmp_path, f"document.getElementById('direct').click(); document.getElementById('{target}').click()")
    assert found.classes("on")
    assert not [a for a, _ in found.classes("made") if "id" in a]
