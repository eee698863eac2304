"""Certificates: claims proved of a program, with the texts that they are about, and their check by the solver alone.

Takes: a graph and a target, or a certificate. Gives: a certificate, or its faults. `certify` compiles and validates a program. Its
certificate is a JSON object with the program as text: the tensor graph, and what it is after the passes of TEXTS. It has the digest
of the tensor graph, and the numbers of the Buffers that the caller sees. It lists the rewrite steps between two of the texts with
the ledger's digests of their rules, and every claim with the digest of its query. `certify` raises Uncertified if the solver alone
does not decide a claim.

`check_certificate_and_list_faults` builds all claims anew from the texts, asks the solver about each, compares the digests of the
queries with those in the certificate, and replays the steps. It decides again that each step keeps the values (`certified_values`);
one that is not decided is in the trusted base. The claims rest on no interval and no earlier verdict.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from uops.compiler.config import Config, default_config
from uops.compiler.log import GraphTransform
from uops.compiler.pipeline import record_lowering_up_to_plan
from uops.compiler.prove.admission import digest_rule, is_rule_in_ledger
from uops.compiler.prove.solver.solver import LONGEST, SolverWorker, solver_version
from uops.compiler.rewrite.rule import RewriteStep, Rule
from uops.compiler.rewrite.rules import VALUES
from uops.compiler.rewrite.rules.fast_math import FAST_MATH, LAWS
from uops.compiler.target import Target
from uops.compiler.validate.certified_values import (
    HINTS_FORM,
    ValueFindings,
    ValueHints,
    check_values,
    find_program_before_split,
    list_value_hints,
)
from uops.compiler.validate.decide import decide_by_solver, encode_negated_claim_and_model_defaults
from uops.compiler.validate.kernel import generate_no_wrap_claims, generate_position_claims, make_bounds_claim
from uops.compiler.validate.launch import validate
from uops.compiler.validate.launches.plan import caller_buffer_numbers, generate_call_claims, generate_plan_claims
from uops.compiler.validate.model import ValidationClaim
from uops.compiler.validate.races import generate_race_claims as race_claims
from uops.compiler.validate.reader import read_accesses
from uops.compiler.validate.sites import KernelAccesses
from uops.compiler.validate.sums import generate_claims_for_memory_with_atomics
from uops.compiler.validate.values import (
    group_rewriter_transforms_by_result,
    replay_proved_steps_and_find_fault,
    select_used_steps,
    validate_linearization,
)
from uops.compiler.validate.writes import generate_once_coverage_and_read_claims
from uops.spec.errors import SpecError, UopsError
from uops.spec.ir import dtypes as dt
from uops.spec.ir.native import describe_native, is_native, refuse_native_text
from uops.spec.ir.node import UOp, toposort
from uops.spec.ir.ops import Op
from uops.spec.ir.text import parse, parse_and_locate_nodes, show
from uops.spec.untrusted import BadFile, describe_path, find_misfit, read_json
from uops.spec.verify.dialects import Dialect
from uops.spec.verify.verifier import verify

#: Version of the file format.
FORMAT = 4
#: The program as text, in this order. `parts` is the callified program with large Reduces in parts.
TEXTS = ("tensor", "callify", "parts", "join", "widths", "decompose", "simplify", "linearize", "plan")
#: The trusted base of every certificate, one entry per line.
TRUSTED = (
    "the solver, and the text of a query for it (uops.compiler.prove)",
    "the reader of accesses, and the claims that are made of them (uops.compiler.validate)",
    "the committed ledger of proved rules, and that Rule.apply instantiates what was proved",
    "the parser of .uops text (uops.spec.ir.text)",
    "that `callers` are the numbers of all Buffers that the caller sees, and `hints.values` those of the values, in order",
    "the rules of index arithmetic, by the ledger, and linearization, which bring values to one form before they are compared",
    "the elements of arrays, and the laws by which kernels with the same terms store the same (uops.compiler.validate)",
    "that different terms have different fingerprints, of 64 bits",
    "the decomposition of a node into primitive ops: `uops conform --tier exhaustive`",
    "from the instructions to machine code: the renderer, the toolchain and the machine: `uops conform`",
)


class OutOfTime(UopsError):
    """A check exceeds its time limit."""


class Uncertified(UopsError):
    """The solver alone does not prove what a certificate would claim."""


Json = dict[str, Any]


def certify(graph: UOp, target: Target, config: Config | None = None) -> Json:
    """Return the certificate of a program. Raises what `lower` raises, Invalid, Uncertified, and NoSolver without Z3."""
    graphs_by_pass, graphs_by_step, log = record_lowering_up_to_plan(graph, target, config)
    validate(graphs_by_pass, graphs_by_step, log).raise_unless_proved()
    moves = group_rewriter_transforms_by_result(log)
    pairs = zip(graphs_by_step["decompose"].src, graphs_by_step["simplify"].src, strict=True)
    fast_math_rules = sorted(log.applications_by_assuming_rule) if (config or default_config()).fast_math else None
    callify = graphs_by_pass["callify"]
    graphs = {"tensor": graph, "parts": find_program_before_split(log, callify), **graphs_by_pass, **graphs_by_step}
    steps = [_steps_between(a.body, b.body, moves) for a, b in pairs]
    return build_and_check_certificate(graphs, list_value_hints(log, graphs), steps, fast_math_rules, log.external)


def _steps_between(before: UOp, after: UOp, moves: Mapping[UOp, Sequence[GraphTransform]]) -> Sequence[RewriteStep]:
    """Return the logged rewrite steps that lead from one body to the other."""
    steps = next((m.steps for m in moves.get(after, ()) if m.before is before), ())
    return select_used_steps(before, steps)


def build_and_check_certificate(
    graphs_by_text: Mapping[str, UOp],
    hints: ValueHints,
    steps_by_kernel: Sequence[Sequence[RewriteStep]],
    fast_math_rules: Sequence[str] | None = None,
    caller_memory: Iterable[UOp] | None = None,
) -> Json:
    """Build the certificate of a program. Raises Uncertified.

    `steps_by_kernel` lead from decompose to simplify. `fast_math_rules` are the fast-math rules applied before, None if
    fast-math is off. `caller_memory` is what the caller sees; for None, all arguments of the callified program.
    """
    texts = {name: show(graphs_by_text[name]) for name in TEXTS}
    rules = _value_rules_by_name()
    certificate: Json = {
        "format": FORMAT,
        "solver": solver_version(),
        "rules": {name: digest_rule(rules[name]) for name in sorted({s.rule for k in steps_by_kernel for s in k})},
        "program": _digest(texts["tensor"]),
        "texts": texts,
        "hints": hints,
        "callers": caller_buffer_numbers(graphs_by_text["callify"].arguments if caller_memory is None else caller_memory),
        "steps": [[[s.rule, show(s.before), show(s.after)] for s in k] for k in steps_by_kernel],
    }
    if fast_math_rules is not None:
        assuming = _fast_math_rules_by_name()
        names = sorted({*fast_math_rules, *(r.name for r in LAWS)})
        certificate["fast_math"] = {name: digest_rule(assuming[name]) for name in names}
    launches = {name: parse(text) for name, text in texts.items()}
    certificate["trusted"] = trusted_base(certificate, check_values(launches, hints))
    certificate["claims"] = [
        [c.kind.value, c.place, _digest(encode_negated_claim_and_model_defaults(c).text)]
        for c in generate_kernel_call_and_plan_claims(launches, certificate["callers"])
    ]
    faults = check_certificate_and_list_faults(certificate)
    if faults:
        raise Uncertified(faults[0])
    return certificate


#: The schema of a certificate; its file also has `digest`, over all the rest.
FORM = {
    "format": int, "solver": str, "trusted": [str], "rules": {str: str}, "fast_math?": {str: str},
    "program": str, "texts": dict.fromkeys(TEXTS, str), "callers": [int], "hints": HINTS_FORM,
    "steps": [[(str, str, str)]], "claims": [(str, str, str)],
}  # fmt: skip
#: Advice for a certificate of another version.
ANEW = "Certify the program again"
#: Greatest size of a certificate, in bytes; a usual one has some hundred thousand.
MOST_BYTES = 1 << 26
#: Default time limit of a check, in seconds.
SECONDS = 600.0
#: The dialect of each text; the steps between two passes have none of their own.
_DIALECTS = {
    "tensor": Dialect.TENSOR,
    "callify": Dialect.CALLIFIED,
    "parts": Dialect.CALLIFIED,
    "join": Dialect.SCHEDULED,
    "linearize": Dialect.LINEAR,
    "plan": Dialect.PLANNED,
}
#: Exceptions of the reader of texts that are no lowering.
_UNREADABLE = (UopsError, LookupError, AssertionError, ValueError, TypeError, AttributeError, ArithmeticError, RecursionError)


def load_certificate_and_check_digest(path: Path) -> Json:
    """Read a certificate from a file. Raises BadFile with the file and the place of the fault."""
    certificate: Json = read_json(path, max_bytes=MOST_BYTES)
    if isinstance(certificate, dict) and type(certificate.get("format")) is int and certificate["format"] != FORMAT:
        raise BadFile(f"{describe_path(path)} is no certificate: its format is {certificate['format']}, expected {FORMAT}. {ANEW}")
    if misfit := find_misfit(certificate, {**FORM, "digest": str}):
        raise BadFile(f"{describe_path(path)} is no certificate: {misfit}")
    if certificate.pop("digest") != _certificate_digest(certificate):
        raise BadFile(f"{describe_path(path)} is no certificate: its digest is not that of its contents")
    return certificate


def refuse_native_text_in_certificate(certificate: Json, file_name: str, how_to_allow: str) -> None:
    """Raise NativeTextError for native text in the programs of a certificate (R167). A text that cannot be read has none."""
    steps = [(f"steps.{k}", text) for k, kernel in enumerate(certificate["steps"]) for _, *sides in kernel for text in sides]
    for name, text in (*((f"texts.{name}", text) for name, text in certificate["texts"].items()), *steps):
        try:
            graph = parse_and_locate_nodes(text)
        except SpecError:  # a fault that the check reports
            continue
        refuse_native_text(graph, f"{file_name}: {name}, ", how_to_allow)


def check_certificate_and_list_faults(certificate: Json, time_limit_seconds: float = SECONDS) -> list[str]:
    """Return the faults of a well-formed certificate. Raises NoSolver without Z3."""
    worker = SolverWorker()
    try:
        return list(check_certificate_and_yield_faults(certificate, worker, time_limit_seconds))
    finally:
        worker.close()


def check_certificate_and_yield_faults(
    certificate: Json, worker: SolverWorker, time_limit_seconds: float = SECONDS
) -> Iterator[str]:
    """Yield the faults of a certificate, those that need no solver first."""
    if certificate["format"] != FORMAT:
        yield f"its format is {certificate['format']}, expected {FORMAT}. {ANEW}"
    elif certificate["solver"] != solver_version():
        yield f"it was made with {certificate['solver']}, expected {solver_version()}. {ANEW}"
    else:
        deadline = time.monotonic() + time_limit_seconds
        yield from _find_rule_and_trust_mismatches(certificate)
        try:
            launches = _parse_texts_and_verify_ir(certificate)
            yield from _yield_value_order_and_constant_faults(certificate, launches)
            yield from _check_values_and_find_trust_mismatch(certificate, launches)
            program_claims = _list_claims_and_try_encoding(certificate, launches)
        except OutOfTime:
            raise
        except _UNREADABLE as e:
            yield f"the texts are no lowering: {type(e).__name__}: {e}"
        else:
            yield from _yield_digest_mismatch_and_unproved_claims(certificate, program_claims, worker, deadline)


def _parse_texts_and_verify_ir(certificate: Json) -> dict[str, UOp]:
    """Parse and verify the graphs of the texts. Raises SpecError, which names the text."""
    launches: dict[str, UOp] = {}
    for name in TEXTS:
        try:
            launches[name] = parse(certificate["texts"][name])
            verify(launches[name], _DIALECTS.get(name))
        except SpecError as e:
            raise SpecError(f"texts.{name}: {e}", claim=e.claim, line=e.line, column=e.column) from e
    return launches


def digest_program(graph: UOp) -> str:
    """Return the digest by which a certificate names its tensor graph."""
    return _digest(show(graph))


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _value_rules_by_name() -> dict[str, Rule]:
    return {r.name: r for r in VALUES}


def _fast_math_rules_by_name() -> dict[str, Rule]:
    return {r.name: r for r in (*FAST_MATH, *filter(is_rule_in_ledger, LAWS))}


def _head_and_list_fast_math_assumptions(certificate: Json) -> list[str]:
    """Return the assumptions of a program that fast-math changed, in the order of the rules' names, which a file keeps."""
    rules = _fast_math_rules_by_name()
    assumptions = [f"{name} assumes {rules[name].assumes}" for name in sorted(certificate["fast_math"])]
    return ["fast-math: the program computes what the one given does over the real numbers (R156), where", *assumptions]


def _find_rule_and_trust_mismatches(certificate: Json) -> Iterator[str]:
    """Yield the differences between the rules of a certificate and those of this package."""
    fast_math_digests = certificate.get("fast_math", {})
    for names, rules in ((certificate["rules"], _value_rules_by_name()), (fast_math_digests, _fast_math_rules_by_name())):
        for name, digest in names.items():
            if name not in rules:
                yield f"rule {name} is not proved by the ledger"
            elif digest_rule(rules[name]) != digest:
                yield f"rule {name} has changed since it was certified"
    needed = {rule for steps in certificate["steps"] for rule, _, _ in steps}
    if certificate["rules"].keys() != needed:
        yield f"its rules are not those of its steps: {', '.join(sorted(certificate['rules'].keys() ^ needed))}"
    if not set(fast_math_digests) <= set(_fast_math_rules_by_name()):
        return
    if not _names_fast_math_assumptions(certificate):
        yield "what fast-math assumes is not in the trusted base"


def _names_fast_math_assumptions(certificate: Json) -> bool:
    """Return True if the assumptions of the fast-math rules of a certificate are in its trusted base."""
    return not certificate.get("fast_math") or set(_head_and_list_fast_math_assumptions(certificate)) <= set(certificate["trusted"])


def trusted_base(certificate: Json, findings: ValueFindings) -> list[str]:
    """Return the trusted base of a certificate: all that it rests on without proof."""
    fast_math = _head_and_list_fast_math_assumptions(certificate) if certificate.get("fast_math") is not None else ()
    return [*TRUSTED, *_make_native_code_assumption_if_any(certificate), *fast_math, *findings.undecided]


def _check_values_and_find_trust_mismatch(certificate: Json, graphs_by_name: Mapping[str, UOp]) -> Iterator[str]:
    """Yield the steps that do not keep the values, and what the certificate should name in its trusted base."""
    if certificate["program"] != _digest(certificate["texts"]["tensor"]):
        yield "its digest of the tensor graph is not that of the text"
    findings = check_values(graphs_by_name, certificate["hints"])
    yield from findings.refuted
    if _names_fast_math_assumptions(certificate) and certificate["trusted"] != trusted_base(certificate, findings):
        yield "the trusted base is not the one that such a certificate has"


def _make_native_code_assumption_if_any(certificate: Json) -> list[str]:
    """Return what a program with native code assumes. No claim covers what native code reads and writes (R167)."""
    try:
        nodes = toposort(parse(certificate["texts"]["join"]))
    except SpecError:  # a fault that the check reports
        return []
    native = dict.fromkeys(describe_native(u) for u in nodes if is_native(u))
    return [f"what native code reads and writes, and its order with other accesses: {', '.join(native)}"] if native else []


def _list_claims_and_try_encoding(certificate: Json, graphs_by_name: Mapping[str, UOp]) -> list[ValidationClaim]:
    """Return all claims of the texts, after encoding each. Raises what the reader of texts raises."""
    program_claims = list(generate_kernel_call_and_plan_claims(graphs_by_name, certificate["callers"]))
    for c in program_claims:
        encode_negated_claim_and_model_defaults(c)
    return program_claims


def _yield_digest_mismatch_and_unproved_claims(
    certificate: Json, regenerated_claims: Sequence[ValidationClaim], worker: SolverWorker, deadline: float
) -> Iterator[str]:
    """Yield the claims that differ from those of the certificate, or that the solver does not prove before the deadline."""
    digests = [[c.kind.value, c.place, _digest(encode_negated_claim_and_model_defaults(c).text)] for c in regenerated_claims]
    if digests != certificate["claims"]:
        yield "the claims of the texts are not those written down"
    if not regenerated_claims:
        yield "it claims nothing"
    for c in dict.fromkeys(regenerated_claims):
        worker.seconds = min(LONGEST, deadline - time.monotonic())
        if worker.seconds <= 0:
            yield f"{c.kind.value} {c.place}: out of time"
            return
        v = decide_by_solver(c, worker)
        if not v.is_proved:
            yield str(v)


def _yield_value_order_and_constant_faults(certificate: Json, graphs_by_name: Mapping[str, UOp]) -> Iterator[str]:
    """Yield the kernels whose values the rewrite steps and the order of instructions do not prove."""
    rules = _value_rules_by_name()
    names = ("join", "decompose", "simplify", "linearize")
    for k, calls in enumerate(zip(*(graphs_by_name[n].src for n in names), strict=True)):
        before, primitive, simple, listed = (c.body for c in calls)
        steps = [RewriteStep(rule, parse(a), parse(b), {}) for rule, a, b in certificate["steps"][k]]
        fault = None if primitive is simple else replay_proved_steps_and_find_fault(primitive, simple, steps, rules)
        if fault is not None:
            yield f"kernel {k}, decompose to simplify: {fault}"
        v = validate_linearization(simple, listed)
        if not v.is_proved:
            yield f"kernel {k}: {v}"
        lost_constants = collect_non_index_number_constants(before) - collect_non_index_number_constants(primitive)
        if lost_constants:
            yield f"kernel {k} computes with {sorted(map(str, lost_constants))[0]} before, and not after"


def collect_non_index_number_constants(body: UOp) -> set[tuple[str, object]]:
    """Return the constants with which a body computes values: floats by their bits, and integers except index."""
    constants: set[tuple[str, object]] = set()
    for u in toposort(body):
        if u.op is Op.CONST and u.dtype not in (dt.index, dt.bool_):
            constants.add((u.dtype.short, u.arg))
    return constants


def generate_kernel_call_and_plan_claims(
    graphs_by_name: Mapping[str, UOp], caller_buffers: Collection[int]
) -> Iterator[ValidationClaim]:
    """Yield all claims of a program once, from its texts and the numbers of the caller's Buffers alone."""
    seen: set[tuple[UOp, UOp]] = set()
    for before, after in zip(graphs_by_name["join"].src, graphs_by_name["linearize"].src, strict=True):
        pair = before.body, after.body
        if pair not in seen:
            seen.add(pair)
            yield from generate_distinct_claims_of_kernel(*map(read_accesses, pair))
    yield from generate_call_claims(graphs_by_name["join"], graphs_by_name["linearize"])
    yield from generate_plan_claims(graphs_by_name["linearize"], graphs_by_name["plan"], caller_buffers)


def generate_distinct_claims_of_kernel(old: KernelAccesses, new: KernelAccesses) -> Iterator[ValidationClaim]:
    """Yield the distinct claims of one kernel, in a fixed order."""
    done: set[tuple[object, object]] = set()
    for c in _generate_claims_with_duplicates(old, new):
        if (c.given, c.goal) not in done:
            done.add((c.given, c.goal))
            yield c


def _generate_claims_with_duplicates(old: KernelAccesses, new: KernelAccesses) -> Iterator[ValidationClaim]:
    yield from generate_position_claims(new)
    for s in new.sites:
        yield make_bounds_claim(s)
        yield from generate_no_wrap_claims(s)
    yield from generate_once_coverage_and_read_claims(old, new)
    yield from generate_claims_for_memory_with_atomics(old, new)
    yield from race_claims(new)


def dump_certificate(certificate: Json) -> str:
    """Return the text of a certificate."""
    return json.dumps({**certificate, "digest": _certificate_digest(certificate)}, indent=1, sort_keys=True) + "\n"


def _certificate_digest(certificate: Json) -> str:
    """Return the digest of all parts of a certificate. It detects damage, not forgery, as a forger can compute it too."""
    return _digest(json.dumps(certificate, sort_keys=True))
