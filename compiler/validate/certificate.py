"""Certificates: what was proved of a program, with the texts of which it was proved, and their check by the solver alone.

`certify(graph, target)` compiles and validates a program and makes its certificate: a JSON object with the launch as text after
`join`, `decompose`, `simplify`, `linearize` and `plan`, the numbers of the Buffers that the caller sees, the steps of rules between
two of the texts with the digests by which the ledger proves these rules, and every claim with the digest of its query. It raises
Uncertified where the solver alone does not decide one.

`check(certificate)` makes all claims anew from the texts, asks the solver about each, compares the digests of the queries with
those written down, and replays the steps. No pass is run, no interval, point or earlier verdict is used. It gives what is wrong:
nothing where all is well.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from uops.compiler.config import Config, default
from uops.compiler.log import Move
from uops.compiler.pipeline import record_lowering
from uops.compiler.prove.admission import digest, is_proved
from uops.compiler.prove.solver.solver import LONGEST, Worker, version
from uops.compiler.rewrite.rule import Rule, Step
from uops.compiler.rewrite.rules.fast_math import FAST_MATH, LAWS
from uops.compiler.target import Target
from uops.compiler.validate.decide import by_solver, query
from uops.compiler.validate.kernel import bounds, widths
from uops.compiler.validate.launch import validate
from uops.compiler.validate.model import Claim
from uops.compiler.validate.plan import callers, kept, plan
from uops.compiler.validate.races import claims as race_claims
from uops.compiler.validate.reader import read
from uops.compiler.validate.sites import Body
from uops.compiler.validate.values import arranged, moves_of, replay, used
from uops.compiler.validate.writes import agreement_claims
from uops.spec.errors import SpecError, UopsError
from uops.spec.ir import dtypes as dt
from uops.spec.ir.node import UOp, toposort
from uops.spec.ir.ops import Op
from uops.spec.ir.text import parse, show
from uops.spec.untrusted import BadFile, describe_path, misfit, read_json
from uops.spec.verify.dialects import Dialect
from uops.spec.verify.verifier import verify

FORMAT = 3
#: The launch as text, in this order.
TEXTS = ("join", "decompose", "simplify", "linearize", "plan")
#: What a certificate rests on, beside what it proves.
TRUSTED = (
    "the solver, and the text of a query for it (uops.compiler.prove)",
    "the reader of accesses, and the claims that are made of them (uops.compiler.validate)",
    "the committed ledger of proved rules, and that Rule.apply instantiates what was proved",
    "the parser of .uops text (uops.spec.ir.text)",
    "that `callers` are the numbers of all Buffers that the caller sees",
    "from join to decompose the values, not the accesses, of a kernel: `uops stages` and `uops conform --tier exhaustive`",
    "from the instructions to machine code: the renderer, the toolchain and the machine: `uops conform`",
)


class OutOfTime(UopsError):
    """A check takes longer than it may."""


class Uncertified(UopsError):
    """The solver alone does not show what a certificate would have to say."""


Json = dict[str, Any]


def certify(graph: UOp, target: Target, config: Config | None = None) -> Json:
    """The certificate of a program. Raises what `lower` raises, Invalid, Uncertified, and NoSolver without Z3."""
    passed, steps, log = record_lowering(graph, target, config)
    validate(passed, steps, log).require()
    moves = moves_of(log)
    pairs = zip(steps["decompose"].src, steps["simplify"].src, strict=True)
    relaxed = sorted(log.assumed) if (config or default()).fast_math else None
    return write(passed, steps, [_steps(a.src[0], b.src[0], moves) for a, b in pairs], relaxed)


def _steps(before: UOp, after: UOp, moves: Mapping[UOp, Sequence[Move]]) -> Sequence[Step]:
    """The steps that matter to one kernel."""
    found = next((m.steps for m in moves.get(after, ()) if m.before is before), ())
    return used(before, found)


def write(
    passed: Mapping[str, UOp], steps: Mapping[str, UOp], by_kernel: Sequence[Sequence[Step]], relaxed: Sequence[str] | None = None
) -> Json:
    """The certificate of a program; `by_kernel` are the steps that lead from decompose to simplify, `relaxed` the rules of
    fast-math that were applied before, where that was asked for. Raises Uncertified."""
    graphs = {**passed, **steps}
    texts = {name: show(graphs[name]) for name in TEXTS}
    rules = _rules()
    made: Json = {
        "format": FORMAT,
        "solver": version(),
        "trusted": list(TRUSTED),
        "rules": {name: digest(rules[name]) for name in sorted({s.rule for k in by_kernel for s in k})},
        "texts": texts,
        "callers": callers(graphs["callify"]),
        "steps": [[[s.rule, show(s.before), show(s.after)] for s in k] for k in by_kernel],
    }
    if relaxed is not None:
        assuming = _relaxing()
        made["fast_math"] = {name: digest(assuming[name]) for name in (*relaxed, *sorted(r.name for r in LAWS))}
        made["trusted"] += _assumptions(made)
    launches = {name: parse(text) for name, text in texts.items()}
    made["claims"] = [[c.kind.value, c.place, _digest(query(c)[0])] for c in claims(launches, made["callers"])]
    wrong = check(made)
    if wrong:
        raise Uncertified(wrong[0])
    return made


#: The form of a certificate; in its file there is also `digest`, of all the rest.
FORM = {
    "format": int, "solver": str, "trusted": [str], "rules": {str: str}, "fast_math?": {str: str},
    "texts": dict.fromkeys(TEXTS, str), "callers": [int], "steps": [[(str, str, str)]], "claims": [(str, str, str)],
}  # fmt: skip
#: Bytes of a certificate that are read; one has some hundred thousand.
MOST_BYTES = 1 << 26
#: Seconds that a check may take.
SECONDS = 600.0
#: The dialect of each text; the steps between two passes have none of their own.
_DIALECTS = {"join": Dialect.SCHEDULED, "linearize": Dialect.LINEAR, "plan": Dialect.PLANNED}
#: What the reader of texts that are no lowering may raise, beside errors of ours.
_UNREADABLE = (UopsError, LookupError, AssertionError, ValueError, TypeError, AttributeError, ArithmeticError, RecursionError)


def load(path: Path) -> Json:
    """A certificate from a file. Raises BadFile, with the file and the place, for what is none."""
    made: Json = read_json(path, most=MOST_BYTES)
    if isinstance(made, dict) and type(made.get("format")) is int and made["format"] != FORMAT:
        raise BadFile(f"{describe_path(path)} is no certificate of format {FORMAT}, but of {made['format']}")
    if wrong := misfit(made, {**FORM, "digest": str}):
        raise BadFile(f"{describe_path(path)} is no certificate: {wrong}")
    if made.pop("digest") != _sum(made):
        raise BadFile(f"{describe_path(path)} is no certificate: it is not as it was written, its digest is of something else")
    return made


def check(made: Json, seconds: float = SECONDS) -> list[str]:
    """What is wrong with a certificate of the right form. Raises NoSolver without Z3."""
    worker = Worker()
    try:
        return list(faults(made, worker, seconds))
    finally:
        worker.close()


def faults(made: Json, worker: Worker, seconds: float = SECONDS) -> Iterator[str]:
    """What is wrong with a certificate, what needs no solver first."""
    if made["format"] != FORMAT:
        yield f"no certificate of format {FORMAT}"
    elif made["solver"] != version():
        yield f"made with {made['solver']}, this is {version()}"
    else:
        until = time.monotonic() + seconds
        yield from _rules_differ(made)
        try:
            launches = _launches(made)
            yield from _values_fail(made, launches)
            found = _claims(made, launches)
        except OutOfTime:
            raise
        except _UNREADABLE as e:
            yield f"the texts are no lowering: {type(e).__name__}: {e}"
        else:
            yield from _claims_fail(made, found, worker, until)


def _launches(made: Json) -> dict[str, UOp]:
    """The graphs of the texts, each well-formed. Raises SpecError, which names the text."""
    found: dict[str, UOp] = {}
    for name in TEXTS:
        try:
            found[name] = parse(made["texts"][name])
            verify(found[name], _DIALECTS.get(name))
        except SpecError as e:
            raise SpecError(f"texts.{name}: {e}", claim=e.claim, line=e.line, column=e.column) from e
    return found


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _rules() -> dict[str, Rule]:
    from uops.compiler.rewrite.rules import VALUES

    return {r.name: r for r in VALUES}


def _relaxing() -> dict[str, Rule]:
    return {r.name: r for r in (*FAST_MATH, *filter(is_proved, LAWS))}


def _assumptions(made: Json) -> list[str]:
    """What a program rests on that fast-math changed."""
    known = _relaxing()
    said = [f"{name} assumes {known[name].assumes}" for name in made["fast_math"]]
    return ["fast-math: the program computes what the one given does over the real numbers (R156), where", *said]


def _rules_differ(made: Json) -> Iterator[str]:
    relaxed = made.get("fast_math", {})
    for names, known in ((made["rules"], _rules()), (relaxed, _relaxing())):
        for name, written in names.items():
            if name not in known:
                yield f"rule {name} is not proved by the ledger"
            elif digest(known[name]) != written:
                yield f"rule {name} is another one now"
    needed = {rule for steps in made["steps"] for rule, _, _ in steps}
    if made["rules"].keys() != needed:
        yield f"its rules are not those of its steps: {', '.join(sorted(made['rules'].keys() ^ needed))}"
    if not set(relaxed) <= set(_relaxing()):
        return
    if relaxed and not set(_assumptions(made)) <= set(made["trusted"]):
        yield "what fast-math assumes is not in the trusted base"
    elif made["trusted"] != trusted_base(made):
        yield "the trusted base is not the one that such a certificate has"


def trusted_base(made: Json) -> list[str]:
    """The trusted base of a certificate: all that it rests on without proof."""
    return [*TRUSTED, *(_assumptions(made) if made.get("fast_math") is not None else ())]


def _claims(made: Json, launches: Mapping[str, UOp]) -> list[Claim]:
    """All claims of the texts, each with its query. Raises what the reader of texts raises."""
    found = list(claims(launches, made["callers"]))
    for c in found:
        query(c)
    return found


def _claims_fail(made: Json, found: Sequence[Claim], worker: Worker, until: float) -> Iterator[str]:
    digests = [[c.kind.value, c.place, _digest(query(c)[0])] for c in found]
    if digests != made["claims"]:
        yield "the claims of the texts are not those written down"
    if not found:
        yield "it claims nothing"
    for c in dict.fromkeys(found):
        worker.seconds = min(LONGEST, until - time.monotonic())
        if worker.seconds <= 0:
            yield f"{c.kind.value} {c.place}: out of time"
            return
        v = by_solver(c, worker)
        if not v.proved:
            yield str(v)


def _values_fail(made: Json, launches: Mapping[str, UOp]) -> Iterator[str]:
    rules = _rules()
    names = ("join", "decompose", "simplify", "linearize")
    for k, calls in enumerate(zip(*(launches[n].src for n in names), strict=True)):
        before, primitive, simple, listed = (c.src[0] for c in calls)
        steps = [Step(rule, parse(a), parse(b), {}) for rule, a, b in made["steps"][k]]
        why = None if primitive is simple else replay(primitive, simple, steps, rules)
        if why is not None:
            yield f"kernel {k}, decompose to simplify: {why}"
        v = arranged(simple, listed)
        if not v.proved:
            yield f"kernel {k}: {v}"
        lost = numbers(before) - numbers(primitive)
        if lost:
            yield f"kernel {k} computes with {sorted(map(str, lost))[0]} before, and not after"


def numbers(body: UOp) -> set[tuple[str, object]]:
    """The constants that a body computes values with: floats, by what they are to a machine, and integers that are no index."""
    found: set[tuple[str, object]] = set()
    for u in toposort(body):
        if u.op is Op.CONST and u.dtype not in (dt.index, dt.bool_):
            found.add((u.dtype.short, u.arg))
    return found


def claims(launches: Mapping[str, UOp], external: Collection[int]) -> Iterator[Claim]:
    """All claims of a program, from its texts and the numbers of the caller's Buffers alone, each once."""
    seen: set[tuple[UOp, UOp]] = set()
    for before, after in zip(launches["join"].src, launches["linearize"].src, strict=True):
        pair = before.src[0], after.src[0]
        if pair not in seen:
            seen.add(pair)
            yield from kernel_claims(*map(read, pair))
    yield from kept(launches["join"], launches["linearize"])
    yield from plan(launches["linearize"], launches["plan"], external)


def kernel_claims(old: Body, new: Body) -> Iterator[Claim]:
    """The claims of one kernel, in a fixed order."""
    done: set[tuple[object, object]] = set()
    for c in _all(old, new):
        if (c.given, c.goal) not in done:
            done.add((c.given, c.goal))
            yield c


def _all(old: Body, new: Body) -> Iterator[Claim]:
    for s in new.sites:
        yield bounds(s)
        yield from widths(s)
    yield from agreement_claims(old, new)
    yield from race_claims(new)


def dump(made: Json) -> str:
    """The text of a certificate."""
    return json.dumps({**made, "digest": _sum(made)}, indent=1, sort_keys=True) + "\n"


def _sum(made: Json) -> str:
    """The digest of all parts of a certificate. It tells damage, not forgery: who forges one can compute it, too."""
    return _digest(json.dumps(made, sort_keys=True))
