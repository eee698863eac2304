"""A lowering as one static, self-contained HTML page.

Takes: a `TraceView`. Gives: the text of the page. Lines and links are compressed blocks (`chunks`), which the script decodes when
they come into view. A page of many kernels opens with the first of them.
"""

from __future__ import annotations

from html import escape
from pathlib import Path
from string import Template

from uops import __version__
from uops.cli.viewer.columns import Json, StageColumn, TraceView
from uops.spec.untrusted import escape_unprintable

HERE = Path(__file__).parent

#: Families of the legend, in the order of the specification's tables.
FAMILIES = ("source", "movement", "reduce", "call", "load", "store", "ordering", "elementwise", "marker", "codegen")
#: Largest number of lines in all columns with which every kernel is shown initially.
ALL_AT_ONCE = 3000


def render_page(shown: TraceView, program_name: str, target_name: str) -> str:
    """Render the page of one program."""
    index = shown.chunks.add_once(_collect_initial_page_data(shown))
    return Template(_read("page.html")).substitute(
        program=escape(escape_unprintable(program_name)),
        target=escape(target_name),
        version=__version__,
        nodes=f"{shown.columns[0].size:,}",
        toggles="".join(_render_toggle(k, c) for k, c in enumerate(shown.columns)),
        legend="".join(f'<span class="f-{f}">{f}</span>' for f in FAMILIES if f in shown.families),
        columns="".join(_render_column_without_lines(k, c) for k, c in enumerate(shown.columns)),
        style=_read("page.css"),
        script=_read("page.js"),
        index=index,
        chunks="\n".join(
            f'<script type="application/octet-stream" id="c{k}">{text}</script>' for k, text in enumerate(shown.chunks.texts)
        ),
    )


def _read(name: str) -> str:
    return (HERE / name).read_text(encoding="utf-8")


def _render_toggle(k: int, c: StageColumn) -> str:
    return f'<button type="button" data-column="{k}" aria-pressed="{_render_bool(not c.same)}">{escape(c.title)}</button>'


def _render_bool(x: bool) -> str:
    return "true" if x else "false"


def _render_column_without_lines(k: int, c: StageColumn) -> str:
    note = "same as before" if c.same else f"{c.size:,} nodes" if c.size else ""
    head = f'<h2>{escape(c.title)}</h2><p><span>{escape(c.dialect)}</span><span class="count">{note}</span></p>'
    role = 'role="listbox"' if c.size else 'role="region" tabindex="0"'
    label = f"{escape(c.title)}, {c.size} nodes"
    return (
        f'<section class="column{" shut" if c.same else ""}" data-column="{k}" aria-label="{escape(c.title)}">'
        f'<header>{head}</header><div class="lines" {role} aria-label="{label}"></div></section>\n'
    )


def _collect_initial_page_data(shown: TraceView) -> Json:
    """Collect the data that the script has from the start."""
    lines = sum(c.size for c in shown.columns)
    return {
        "stages": [c.title for c in shown.columns],
        "sizes": [c.size for c in shown.columns],
        "same": [c.same for c in shown.columns],
        "groups": [[[g.name, g.first, g.size, g.chunks, g.kernel, g.decisions] for g in c.groups] for c in shown.columns],
        "joints": [[[j.source, j.target, j.chunk, j.gap] for j in joints] for joints in shown.joints],
        "kernels": [g.name for g in shown.columns[-1].groups],
        "first": None if lines <= ALL_AT_ONCE or len(shown.columns[-1].groups) < 2 else 0,
        "rules": shown.rules,
    }
