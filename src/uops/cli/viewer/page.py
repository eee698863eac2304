"""A lowering as one static HTML page that needs nothing but itself.

Takes: a `View`. Gives: the text of the page. The lines are plain HTML, so that they can be read, searched and printed without the
script; links and causes are one JSON block.
"""

from __future__ import annotations

import json
from html import escape
from pathlib import Path
from string import Template

from uops import __version__
from uops.cli.viewer.columns import Column, Group, Json, Line, View

HERE = Path(__file__).parent

#: Families in the order of the specification's tables, as the legend shows them.
FAMILIES = ("source", "movement", "reduce", "call", "load", "store", "ordering", "elementwise", "marker", "codegen")


def page(shown: View, program: str, target: str) -> str:
    """The page of one program."""
    columns = "".join(_column(k, c) for k, c in enumerate(shown.columns))
    used = {line.family for c in shown.columns for g in c.groups for line in g.lines}
    return Template(_read("page.html")).substitute(
        program=escape(program),
        target=escape(target),
        version=__version__,
        nodes=shown.columns[0].size,
        kernels=_options(shown),
        toggles="".join(_toggle(k, c) for k, c in enumerate(shown.columns)),
        legend="".join(f'<span class="f-{f}">{f}</span>' for f in FAMILIES if f in used),
        columns=columns,
        style=_read("page.css"),
        script=_read("page.js"),
        data=embed(_data(shown)),
    )


def _read(name: str) -> str:
    return (HERE / name).read_text(encoding="utf-8")


def _options(shown: View) -> str:
    names = [g.name for g in shown.columns[-1].groups]
    return "".join(f'<option value="{k}">{k}: {escape(n)}</option>' for k, n in enumerate(names))


def _toggle(k: int, c: Column) -> str:
    return f'<button type="button" data-column="{k}" aria-pressed="{_truth(not c.same)}">{escape(title(c))}</button>'


def title(c: Column) -> str:
    """`source` for the column of a stage that gives source."""
    return "source" if any(g.code is not None for g in c.groups) else c.stage


def _truth(x: bool) -> str:
    return "true" if x else "false"


def _column(k: int, c: Column) -> str:
    note = "same as before" if c.same else f"{c.size} nodes" if c.size else ""
    head = f"<h2>{escape(title(c))}</h2><p><span>{escape(c.dialect)}</span><span>{note}</span></p>"
    groups = "" if c.same else "".join(_group(k, n, g) for n, g in enumerate(c.groups))  # the script copies the column before
    role = 'role="listbox"' if c.size else 'role="region" tabindex="0"'
    label = f"{escape(title(c))}, {c.size} nodes"
    return (
        f'<section class="column{" shut" if c.same else ""}" data-column="{k}" aria-label="{escape(title(c))}">'
        f'<header>{head}</header><div class="lines" {role} aria-label="{label}">{groups}</div></section>\n'
    )


def _group(column: int, n: int, g: Group) -> str:
    decisions = "".join(f"<span>{escape(d)}</span>" for d in g.decisions)
    head = f"<h3>{escape(g.name)}</h3>" + (f'<p class="decisions">{decisions}</p>' if decisions else "")
    if g.code is not None:
        body = f"<pre>{escape(g.code)}</pre>"
    else:
        body = "".join(_line(f"s{column}n{g.first + k}", line) for k, line in enumerate(g.lines))
    return f'<div class="group" role="group" aria-label="{escape(g.name)}" data-kernel="{n}">{head}{body}</div>'


def _line(identity: str, x: Line) -> str:
    depth = f' style="--d:{x.depth}"' if x.depth else ""
    family = f"a-{x.axis}" if x.axis else f"f-{x.family}"
    kind = f" <s>{escape(x.type)}</s>" if x.type else ""
    return (
        f'<div role="option" aria-selected="false" tabindex="-1" id="{identity}" class="{family}"{depth}>'
        f"<b>{escape(x.name)}</b> <i>{escape(x.op)}</i> {escape(x.rest)}{kind}</div>"
    )


def _data(shown: View) -> Json:
    return {
        "stages": [title(c) for c in shown.columns],
        "sizes": [c.size for c in shown.columns],
        "same": [c.same for c in shown.columns],
        "groups": [[[g.first, len(g.lines)] for g in c.groups] for c in shown.columns],
        "links": [[n for row in rows for n in row] for rows in shown.links],
        "causes": shown.causes,
        "steps": shown.steps,
        "rules": shown.rules,
        "gaps": shown.gaps,
    }


def embed(data: Json) -> str:
    """JSON that may stand inside a script element: it has no character that could end it."""
    text = json.dumps(data, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    return text.translate({ord(c): f"\\u{ord(c):04x}" for c in "&<>\u2028\u2029"})
