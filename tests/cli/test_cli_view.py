"""`uops view` writes one page that needs nothing else, shows every stage, and lights up a node through all of them; `uops compile`
prints passes and the steps of rules. The page is judged as text by a parser, and in a browser where one is installed."""

from __future__ import annotations

import base64
import json
import os
import re
import subprocess
import sys
import time
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from html.parser import HTMLParser
from itertools import accumulate
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

import uops as uops_package
from uops.cli.viewer import columns
from uops.cli.viewer.page import FAMILIES
from uops.compiler import STAGES
from uops.spec.ir import build as b
from uops.spec.ir import dtypes as dt
from uops.spec.ir.args import ParamArg
from uops.spec.ir.axes import AxisType
from uops.spec.ir.node import UOp
from uops.spec.ir.ops import Op
from uops.spec.ir.text import format_node_as_line, name_nodes, parse, show
from uops.spec.rows.rows import ROWS
from uops.spec.untrusted import escape_unprintable

Uops = Callable[..., Result]
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
    assert result.exit_code == 0 and result.stdout == "out.html\n", result.output
    return Path("out.html").read_text(encoding="utf-8")


@dataclass
class Book:
    """What a page holds, unpacked as its script does: `lines` by id, the source texts, and `links` between neighbouring stages."""

    index: dict[str, Any]
    lines: dict[str, str]
    styles: dict[str, str]
    sources: list[str]
    links: list[list[tuple[int, int, int, list[tuple[str, list[Any] | None]]]]]

    def of(self, stage: int) -> list[str]:
        return [text for name, text in self.lines.items() if name.startswith(f"s{stage}n")]


def read(text: str) -> Book:
    found = Read(text)
    chunks = {
        a["id"]: json.loads(zlib.decompress(base64.b64decode(content)))
        for a, content in found.where(type="application/octet-stream")
    }
    ((work, _),) = found.classes("work")
    book = Book(chunks[work["data-index"]], {}, {}, [], [])
    for stage, groups in enumerate(book.index["groups"]):
        for _, first, size, own, _, _ in groups:
            packed = [chunks[f"c{k}"] for k in own]
            if not size:
                book.sources.append(packed[0]["code"])
                continue
            for k, (rest, style) in enumerate(pair for chunk, at in offsets(packed) for pair in unpacked(chunk, at)):
                book.lines[f"s{stage}n{first + k}"], book.styles[f"s{stage}n{first + k}"] = f"%{k} {rest}", style
    for k, joints in enumerate(book.index["joints"]):
        book.links.append([row for joint in joints for row in linked(chunks[f"c{joint[2]}"], *firsts(book, k, joint))])
    return book


def offsets(packed: list[Any]) -> list[tuple[Any, int]]:
    return list(zip(packed, (0, len(packed[0]["which"])), strict=True))


def unpacked(chunk: Any, first: int) -> Iterator[tuple[str, str]]:
    holes = iter(chunk["holes"])
    for k, which in enumerate(chunk["which"], first):
        op, rest, kind, style = chunk["templates"][which]
        yield f"{op} {re.sub(chr(1), lambda m, k=k: f'%{k - next(holes)}', rest)}{f' {kind}' if kind else ''}", style


def firsts(book: Book, boundary: int, joint: list[Any]) -> tuple[int, int]:
    groups = book.index["groups"]
    return groups[boundary][joint[0]][1], groups[boundary + 1][joint[1]][1]


def linked(chunk: Any, source: int, target: int) -> Iterator[tuple[int, int, int, list[tuple[str, list[Any] | None]]]]:
    for old, new, why in zip(accumulate(chunk["from"]), accumulate(chunk["to"]), chunk["why"], strict=True):
        causes = [(by, None if step < 0 else chunk["steps"][step]) for by, step in chunk["causes"][why >> 1]]
        yield source + old, target + new, why & 1, causes


def softmax(width: int = 8) -> UOp:
    x = b.param(0, (4, width), dt.float32)
    e = b.contiguous(b.exp2(b.sub(x, b.expand(b.reduce(x, Op.MAX, (1,)), (4, width)))))
    return b.div(e, b.expand(b.reduce(e, Op.ADD, (1,)), (4, width)))


def long_program(nodes: int) -> UOp:
    """About so many nodes, with a kernel for every few of them."""
    x = b.param(0, (8, 8), dt.float32)
    k = 0
    while len(name_nodes(x)) < nodes:
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
    text = shown(uops, softmax())
    assert tuple(a["aria-label"] for a, _ in Read(text).classes("column")) == SHOWN
    assert read(text).index["stages"] == list(SHOWN)


def test_every_node_has_a_line_of_its_text(uops: Uops) -> None:
    graph = softmax()
    book = read(shown(uops, graph))
    names = name_nodes(graph)
    for k, u in enumerate(names):
        assert book.lines[f"s0n{k}"].startswith(f"%{k} " + format_node_as_line(u, names).partition(" = ")[2])
    assert [len(book.of(stage)) for stage in range(len(SHOWN))] == book.index["sizes"]


def test_links_join_lines_of_neighbouring_columns_and_name_causes(uops: Uops) -> None:
    book = read(shown(uops, softmax()))
    sizes = book.index["sizes"]
    assert len(book.links) == len(sizes) - 1
    for k, rows in enumerate(book.links):
        for source, target, made, causes in rows:
            assert 0 <= source < sizes[k] and 0 <= target < sizes[k + 1] and made in (0, 1)
            assert all(step is None or step[0] in book.index["rules"] for _, step in causes)
        assert {target for _, target, _, _ in rows} == set(range(sizes[k + 1]))
    sine = read(shown(uops, UOp(Op.SIN, (b.param(0, (8,), dt.float32),))))
    assert "ranges" in passes(book)
    assert "decompose" in passes(sine)


def passes(book: Book) -> set[str]:
    return {by for rows in book.links for _, _, _, causes in rows for by, _ in causes}


def test_lines_carry_the_colour_of_their_family_and_axis_type(uops: Uops) -> None:
    book = read(shown(uops, softmax()))
    for name, text in book.lines.items():
        op = Op[text.split()[1].upper()]
        axis = re.search(r"type=(\w+)", text)
        assert book.styles[name] == (f"a-{axis[1]}" if op is Op.RANGE and axis else f"f-{columns.color_family(op)}")
    style = (Path(columns.__file__).parent / "page.css").read_text()
    assert all(f".f-{columns.color_family(op)} " in style for op in ROWS)
    assert all(re.search(rf"\.a-{t.name.lower()}\b", style) for t in AxisType)
    assert {columns.color_family(op) for op in ROWS} <= {*FAMILIES, "bestiary"}


def test_each_kernel_has_a_group_in_every_stage_that_has_kernels(uops: Uops) -> None:
    index = read(shown(uops, softmax())).index
    assert len(index["kernels"]) > 1
    for stage, groups in zip(index["stages"], index["groups"], strict=True):
        if stage in ("tensor", "callify"):
            assert [(g[0], g[4]) for g in groups] == [("program", None)]
        else:
            assert [(g[0], g[4]) for g in groups] == [(name, k) for k, name in enumerate(index["kernels"])]


def test_kernels_that_were_joined_are_of_one_kernel(uops: Uops) -> None:
    q, k, v = (b.param(n, (8, 512, 64), dt.float32) for n in range(3))
    scores = products(q, b.permute(k, (0, 2, 1)))
    high = b.expand(b.reshape(b.reduce(scores, Op.MAX, (2,)), (8, 512, 1)), (8, 512, 512))
    scores = b.sub(scores, high)
    index = read(shown(uops, b.tuple_(products(b.exp2(scores), v), b.neg(q)))).index
    rangeify, optimize = (index["groups"][index["stages"].index(stage)] for stage in ("rangeify", "optimize"))
    if len(rangeify) == len(optimize):
        pytest.skip("no kernels are joined for this machine's caches")
    assert sorted({g[4] for g in rangeify}) == list(range(len(index["kernels"])))


def products(x: UOp, y: UOp) -> UOp:
    batch, rows, inner = (int(n) for n in x.shape)
    width = int(y.shape[2])
    left = b.expand(b.reshape(x, (batch, rows, inner, 1)), (batch, rows, inner, width))
    right = b.expand(b.reshape(y, (batch, 1, inner, width)), (batch, rows, inner, width))
    return b.contiguous(b.reshape(b.reduce(b.mul(left, right), Op.ADD, (2,)), (batch, rows, width)))


def test_source_is_held_as_the_renderer_gave_it(uops: Uops) -> None:
    sources = read(shown(uops, softmax())).sources
    assert sources and all("define" in text for text in sources)


def test_equal_kernels_are_stored_once(uops: Uops) -> None:
    def size(kernels: int) -> int:
        x = b.param(0, (8, 8), dt.float32)
        for _ in range(kernels):
            x = b.contiguous(b.sqrt(b.permute(x, (1, 0))))
        return len(shown(uops, x))

    one, many = size(1), size(21)
    assert many - one < 20 * 1500


HOSTILE = "</script><script>alert(1)</script><b>\x1b[31m\u202e&#60;%7 %07"


def test_text_of_a_program_is_never_markup(uops: Uops) -> None:
    text = shown(uops, hostile(), "a<b>&.uops")
    found = Read(text)
    assert not found.wrong
    scripts = [a for tag, a in found.elements if tag == "script"]
    assert [a for a in scripts if a.get("type") != "application/octet-stream"] == [{}]
    assert escape_unprintable(text) == text and "alert" not in text
    assert any(json.dumps(HOSTILE) in x for x in read(text).lines.values())


def hostile() -> UOp:
    return b.neg(UOp(Op.PARAM, (b.shape_vector((2,)),), ParamArg(0, dt.float32, HOSTILE)))


def test_without_output_the_page_is_named_after_the_program(uops: Uops, program: str, tmp_path: Path) -> None:
    result = uops("view", program)
    assert result.stdout == "program.html\n"
    assert (tmp_path / "program.html").stat().st_size > 10_000


def test_a_page_does_not_replace_its_program(uops: Uops, program: str) -> None:
    text = Path(program).read_text()
    Path("program.html").write_text(text)
    for command in (("view", "program.html"), ("view", program, "-o", f"./{program}")):
        result = uops(*command)
        assert result.exit_code == 2 and "the page would replace the program" in result.stderr
    assert Path("program.html").read_text() == Path(program).read_text() == text


@pytest.mark.parametrize("graph", [b.neg(b.param(0, (0,), dt.float32, device="CPU")), b.sink()])
def test_a_program_without_kernels_has_a_page(uops: Uops, graph: UOp) -> None:
    found = read(shown(uops, graph))
    assert len(found.index["joints"]) == len(found.index["groups"]) - 1 == len(STAGES)


def test_progress_is_told_on_standard_error(uops: Uops, program: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.modules["uops.cli.commands.view"], "EVERY", 0.0)
    result = uops("view", program)
    assert result.stdout == "program.html\n"
    assert "program.uops: lowering: 8 of 8 after 0 s" in result.stderr
    assert re.search(r"program.uops: drawing kernels of all stages: (\d+) of \1 after", result.stderr)


def test_a_pass_that_takes_long_is_no_silence(capsys: pytest.CaptureFixture[str]) -> None:
    conform = sys.modules["uops.cli.commands.conform"]
    with conform.show_progress("a.uops: lowering", line_interval=0.05) as advance:
        advance(1, 8)
        time.sleep(2.4)
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) >= 3 and set(lines) <= {"a.uops: lowering: 1 of 8 after 2 s", "a.uops: lowering: 1 of 8 after 0 s"}


def test_a_lowering_takes_no_more_than_the_memory_that_is_free(tmp_path: Path) -> None:
    """In a process of its own, whose address space is limited; what was there before stays."""
    chain = "\n".join(["%0 = param (8), slot=0 : f32", *(f"%{k + 1} = sin %{k}" for k in range(3000))])
    (tmp_path / "long.uops").write_text(chain + "\n")
    (tmp_path / "long.html").write_text("what was there")
    code = (
        "import uops.spec.resources as r; r.read_system_mem_available_bytes = lambda: 96 << 20; "
        "from uops.cli import main; main(['view', 'long.uops'])"
    )
    environment = {**os.environ, "PYTHONPATH": str(Path(uops_package.__file__).parents[1])}
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False, timeout=120)
    assert (
        done.returncode == 1 and "long.uops: the lowering" in done.stderr and "more than the 0.1 GiB that are free" in done.stderr
    )
    assert "Traceback" not in done.stderr and (tmp_path / "long.html").read_text() == "what was there"


def test_an_interrupt_leaves_no_half_of_a_page(uops: Uops, program: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Path("program.html").write_text("what was there")

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("os.replace", interrupt)
    result = uops("view", program)
    assert result.exit_code == 130 and result.stderr.endswith("interrupted\n")
    assert Path("program.html").read_text() == "what was there"
    assert sorted(p.name for p in tmp_path.glob("program.*")) == ["program.html", "program.uops"]


def test_view_refuses_what_it_cannot_lower(uops: Uops, program: str, broken: str) -> None:
    result = uops("view", broken)
    assert result.exit_code == 2 and "PAD.C2" in result.stderr
    result = uops("view", program, "-b", "interp")
    assert result.exit_code == 2 and "is not a target of the compiler" in result.stderr


def test_a_program_of_500_nodes_gives_a_page_of_some_hundred_kilobytes(uops: Uops) -> None:
    graph = long_program(500)
    text = shown(uops, graph)
    assert len(name_nodes(graph)) >= 500
    assert len(text) < 300_000


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


#: Around a script: it begins when the page has read its data, and may wait for what its own acts bring.
BEGIN = """(async () => {
const wait = (n = 100) => new Promise((done) => setTimeout(done, n));
while (!("ready" in document.documentElement.dataset)) await wait(10);
await wait();
try {
const press = async (key) => {
  (document.activeElement || document.body).dispatchEvent(new KeyboardEvent("keydown", { key, bubbles: true })); await wait();
};
const kernel = async (value) => { const el = document.getElementById("kernel"); el.value = value; el.dispatchEvent(new Event("change")); await wait(); };
const filter = async (value) => { const el = document.getElementById("filter"); el.value = value; el.dispatchEvent(new Event("input")); await wait(); };
"""  # noqa: E501 (what a test does is a line)
END = "document.body.dataset.done = ''; } catch (e) { document.body.dataset.failed = String(e); } })();"


Browse = Callable[..., Read]


@pytest.fixture
def browse(dump: Callable[[str], str], tmp_path: Path) -> Browse:
    """The page as a browser leaves it, after `script` has run in it."""

    def browsed(text: str, script: str = "", fragment: str = "") -> Read:
        place = tmp_path / "browsed.html"
        place.write_text(text.replace("</body>", f"<script>{BEGIN}{script}\n{END}</script></body>"), encoding="utf-8")
        left = dump(f"{place.as_uri()}{fragment}")
        assert "data-done" in left, re.findall('data-failed="[^"]*"', left) or "the script did not end"
        return Read(left)

    return browsed


def lit(found: Read, *, direct: bool = False) -> set[str]:
    """The columns in which a line is lit."""
    lines = found.classes("on") if direct else found.classes("on") + found.classes("made")
    return {SHOWN[int(a["id"][1 : a["id"].index("n")])] for a, _ in lines if "id" in a}


def line_with(text: str, stage: int, op: str) -> str:
    return next(name for name, x in read(text).lines.items() if name.startswith(f"s{stage}n") and x.split()[1] == op)


def chosen(found: Read) -> list[str]:
    return [a["id"] for a, _ in found.where(role="option") if a["aria-selected"] == "true"]


def title_of(found: Read) -> str:
    return next(found.text[k] for k, (tag, _) in enumerate(found.elements) if tag == "title")


def test_a_link_to_a_node_lights_it_up_in_every_open_stage(uops: Uops, browse: Browse) -> None:
    text = shown(uops, softmax())
    target = line_with(text, 0, "div")
    found = browse(text, fragment=f"#{target}")
    assert chosen(found) == [target]
    assert lit(found) >= {"tensor", "callify", "rangeify", "select", "linearize"}
    ((_, panel),) = found.where(id="panel")
    assert "tensor → callify" in panel and "became" in panel and "no recorded link: the renderer gives text" in panel


def test_lit_lines_are_scrolled_into_view(uops: Uops, browse: Browse) -> None:
    text = shown(uops, long_program(200))
    script = (
        f"await kernel(''); document.getElementById('{line_with(text, 0, 'permute')}').click(); await wait(1000);"
        "const seen = (el) => { const r = el.getBoundingClientRect(), b = el.closest('.lines').getBoundingClientRect();"
        " return r.height > 0 && r.top >= b.top && r.bottom <= b.bottom; };"
        "document.title = [...document.querySelectorAll('.column:not(.shut)')].filter((c) => c.querySelector('.on'))"
        ".map((c) => `${c.getAttribute('aria-label')} ${[...c.querySelectorAll('.on')].some(seen)}`).join(', ');"
    )
    title = title_of(browse(text, script))
    assert title.startswith("tensor true, callify true, rangeify true") and "false" not in title


def test_a_click_chooses_a_node_and_names_the_rule_that_changed_it(uops: Uops, browse: Browse) -> None:
    text = shown(uops, b.mul(b.cast(b.param(0, (3,), dt.float32), dt.int32), 1))
    target = line_with(text, 0, "mul")
    found = browse(text, f"document.getElementById('{target}').click(); await wait();")
    assert lit(found, direct=True) >= {"tensor", "callify", "rangeify"}
    ((_, panel),) = found.where(id="panel")
    assert "mul-one" in panel and "(x * 1) -> x" in panel and "before" in panel and "after" in panel


def test_a_second_click_or_escape_lets_go(uops: Uops, browse: Browse) -> None:
    text = shown(uops, softmax())
    once = f"const el = document.getElementById('{line_with(text, 0, 'exp2')}'); el.click(); await wait();"
    for again in ("el.click(); await wait();", "await press('Escape');"):
        found = browse(text, once + again)
        assert lit(found) == set() and chosen(found) == []
        assert "Choose a node" in found.where(id="panel")[0][1]


def test_keys_walk_lines_and_stages_and_choose(uops: Uops, browse: Browse) -> None:
    text = shown(uops, softmax())
    begin = f"document.getElementById('{line_with(text, 0, 'exp2')}').focus();"
    keys = "".join(f"await press('{key}');" for key in ("ArrowRight", "ArrowDown", "ArrowUp", "Enter"))
    found = browse(text, begin + keys)
    (line_id,) = chosen(found)
    assert line_id.startswith("s1") and read(text).lines[line_id].split()[1] == "exp2"
    found = browse(text, f"{begin} await press('j'); await press('j');")
    assert {a["data-kernel"] for a, _ in found.classes("group")} == {"0", "1"}  # of the program, and of the kernel
    assert len(found.classes("group")) < len(SHOWN) * 2


@pytest.mark.parametrize("key", ["ArrowDown", "ArrowUp", "ArrowLeft", "ArrowRight"])
def test_an_arrow_key_on_a_fresh_page_chooses_the_first_node(uops: Uops, browse: Browse, key: str) -> None:
    found = browse(shown(uops, softmax()), f"await press('{key}'); document.title = document.activeElement.id;")
    assert chosen(found) == ["s0n0"] and title_of(found) == "s0n0"


def test_the_next_arrow_key_goes_on_from_there(uops: Uops, browse: Browse) -> None:
    script = "await press('ArrowDown'); await press('ArrowDown'); document.title = document.activeElement.id;"
    assert title_of(browse(shown(uops, softmax()), script)) == "s0n1"


def test_a_column_that_is_as_before_opens_with_the_same_lines(uops: Uops, browse: Browse) -> None:
    text = shown(uops, b.neg(b.param(0, (3,), dt.float32)))
    k = read(text).index["same"].index(True)
    found = browse(text, f"document.querySelector('.toggles [data-column=\"{k}\"]').click(); await wait();")
    before, same = ([t for a, t in found.where(role="option") if a["id"].startswith(f"s{j}n")] for j in (k - 1, k))
    assert same and same == before


def test_lines_in_the_browser_are_those_of_the_file(uops: Uops, browse: Browse) -> None:
    text = shown(uops, hostile())
    found = browse(text)
    assert {a["id"]: t for a, t in found.where(role="option")}.items() <= read(text).lines.items()
    assert len(found.where(role="option")) > 10


def test_the_filter_leaves_only_lines_with_its_words(uops: Uops, browse: Browse) -> None:
    text = shown(uops, softmax())
    found = browse(text, "await kernel(''); await filter('EXP2');")
    lines = {a["id"]: t for a, t in found.where(role="option")}
    open_ = [k for k, same in enumerate(read(text).index["same"]) if not same]
    assert lines == {i: t for i, t in read(text).lines.items() if "exp2" in t and int(i[1 : i.index("n")]) in open_}


def test_a_column_that_the_filter_leaves_empty_says_so(uops: Uops, browse: Browse) -> None:
    text = shown(uops, softmax())
    found = browse(text, "await kernel(''); await filter('contiguous');")
    said = [t for _, t in found.classes("empty")]
    with_lines = {a["id"][:2] for a, _ in found.where(role="option")}
    whole = sum(1 for size, same in zip(read(text).index["sizes"], read(text).index["same"], strict=True) if size and not same)
    assert set(said) == {"No line has these words."} and len(said) == whole - len(with_lines) and with_lines
    found = browse(text, "await filter('contiguous'); await filter('');")
    assert not found.classes("empty") and len(found.where(role="option")) > 50


def test_a_large_program_opens_with_its_first_kernel_and_shows_another_when_asked(uops: Uops, browse: Browse) -> None:
    text = shown(uops, long_program(500))
    names = read(text).index["kernels"]
    found = browse(text)
    assert {a["aria-label"] for a, _ in found.classes("group")} == {"program", names[0]}
    found = browse(text, "await kernel('7');")
    assert {a["aria-label"] for a, _ in found.classes("group")} == {"program", names[7]}
    assert found.classes("outside"), "lines of the program that the kernel was not made of"
    found = browse(text, "await kernel('');")
    assert {a["aria-label"] for a, _ in found.classes("group")} == {"program", *names}


def test_a_link_to_a_node_of_another_kernel_shows_that_kernel(uops: Uops, browse: Browse) -> None:
    text = shown(uops, long_program(500))
    index = read(text).index
    stage = index["stages"].index("select")
    name, first, *_ = index["groups"][stage][5]
    found = browse(text, fragment=f"#s{stage}n{first + 3}")
    assert chosen(found) == [f"s{stage}n{first + 3}"]
    assert {a["aria-label"] for a, _ in found.classes("group")} == {"program", name}


def test_only_lines_near_the_window_have_elements(uops: Uops, browse: Browse) -> None:
    x = b.param(0, (4,), dt.float32)
    for k in range(1500):
        x = b.add(b.mul(x, float(k)), 1.0)
    text = shown(uops, x)
    found = browse(text)
    assert 0 < len(found.where(role="option")) < 5000 < sum(read(text).index["sizes"])
    target = "s0n2500"
    assert chosen(browse(text, fragment=f"#{target}")) == [target]


def test_direct_links_only_lights_no_line_that_was_made_beside(uops: Uops, browse: Browse) -> None:
    text = shown(uops, softmax())
    target = line_with(text, 0, "exp2")
    script = f"document.getElementById('direct').click(); document.getElementById('{target}').click(); await wait();"
    found = browse(text, script)
    assert found.classes("on")
    assert not [a for a, _ in found.classes("made") if "id" in a]
