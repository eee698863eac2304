"""The rows of the steps of `@function`, by which a Python function on Tensors becomes a Function node."""

from __future__ import annotations

from uops.spec.rows.named.base import ExecutedBy, NamedRow, RowSubject, Statement, state_claims

_TRACE = "uops.compiler.tensor.trace"
_MEANING = "uops.interp.tensor.actions:MEANING"
_LAZY = "the interpreter takes the graph that the front end has built"


def _make_step(name: str, printed: str, semantics: str, claims: tuple[Statement, ...], executed_by: ExecutedBy) -> NamedRow:
    row_id = f"Function/{name}"
    return NamedRow(row_id, printed, None, semantics, state_claims(row_id, claims), executed_by, RowSubject.FRONT_END)


ROWS = (
    _make_step(
        "ExtractInputs",
        "Extracts inputs",
        "Finds every Tensor among the arguments.",
        (
            ("each Tensor among the arguments is an input, in lists, tuples and dicts too", "R64"),
            ("a Tensor that is given twice is one input", "R64"),
        ),
        ExecutedBy((), (f"{_TRACE}:map_tensors",), _LAZY),
    ),
    _make_step(
        "Run",
        "Runs the function",
        "Runs the Python function lazily, which builds a graph.",
        (("nothing is executed: a function that realizes a Tensor is an error", "R64"),),
        ExecutedBy((), ("uops.compiler.tensor.realize:forbid_realization",), _LAZY),
    ),
    _make_step(
        "Parameterize",
        "Parameterizes",
        "Replaces each input by a Param.",
        (
            ("input k becomes Param k, with the input's shape and dtype", "R64"),
            ("captured Tensors become further Params, after the inputs", "R64"),
            ("the body is closed: no Buffer is left in it", "R64"),
        ),
        ExecutedBy((f"{_MEANING}[PARAM]",), (f"{_TRACE}:_replace_inputs_and_captures_by_params",)),
    ),
    _make_step(
        "WrapBody",
        "Wraps the body",
        "Packs the results in a Tuple, and makes the Function node of it and the inputs.",
        (
            ("the body is a Tuple, of one value too", "R64"),
            ("the node is Function(Tuple(results), inputs, captured)", "R64"),
        ),
        ExecutedBy((f"{_MEANING}[FUNCTION]",), (f"{_TRACE}:_trace_to_function_node",)),
    ),
    _make_step(
        "Return",
        "Returns",
        "Gives a GetTuple of the Function for each result.",
        (
            ("each result is a GetTuple of the Function; a Tensor that is returned twice is one result", "R64"),
            ("lists, tuples and dicts of results are kept", "R64"),
        ),
        ExecutedBy((f"{_MEANING}[GETTUPLE]",), (f"{_TRACE}:_trace_to_function_node",)),
    ),
    _make_step(
        "Resolve",
        "resolved",
        "Substitutes the arguments for the Params when the program is scheduled, or makes an opaque Call of the Function.",
        (("a Function computes what its body computes with argument k in place of Param k", "R64"),),
        ExecutedBy((f"{_MEANING}[FUNCTION]",), ("uops.compiler.passes.callify.callify:inline_calls_and_drop_gradient_markers",)),
    ),
)
