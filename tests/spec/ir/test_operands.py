"""Sources by name: the table says what the rows say, every name is an attribute of UOp, and a wrong name is an error."""

import pytest

from uops.spec.ir import build as B
from uops.spec.ir import dtypes as dt
from uops.spec.ir.node import UOp
from uops.spec.ir.operands import OPERANDS, Operands
from uops.spec.ir.ops import Op
from uops.spec.rows.rows import ROWS, OpSpec

#: What the rows call a source, spelt out.
WORDS = {
    "A": "lhs", "B": "rhs", "C": "addend", "T": "operand", "s": "extents", "s'": "extents", "o": "offsets", "i": "positions",
    "r": "ranges", "range": "ranges", "a": "arguments", "args": "arguments", "v": "values", "u": "effects", "uops": "instructions",
    "buf": "buffer", "val": "value", "alt": "alternative", "deps": "dependencies", "P": "condition", "acc": "accumulator",
    "idx": "index", "ptr": "pointer", "var": "variable", "meta": "metadata", "if": "if_node", "device": "device_node",
}  # fmt: skip
#: Where a row's letter means something else than in most rows.
OF_ONE_OP = {
    Op.WHERE: {"A": "if_true", "B": "if_false"},
    Op.IF: {"gate": "condition"},
    Op.B_IF: {"gate": "condition", "body": "effects"},
    Op.B_BARRIER: {"u": "operand"},
    Op.STACK: {"T": "elements"},
    **{op: {"T": "elements"} for op in (Op.VECTORIZE, Op.CAT, Op.PTRCAT, Op.MSTACK)},
}


def spell(row: OpSpec) -> str:
    """The names of a row's sources, spelt out, with their marks."""
    words = dict(WORDS) if len(row.schema.names) > 1 else {**WORDS, "A": "operand"}
    words |= OF_ONE_OP.get(row.op, {})
    return " ".join(words.get(name, name) + text[len(name) :] for name, text in zip(row.schema.names, row.schema.text.split()))


@pytest.mark.parametrize("row", ROWS.values(), ids=lambda row: row.op.name)
def test_the_names_are_those_of_the_row(row: OpSpec) -> None:
    assert OPERANDS[row.op] == spell(row)


def test_every_name_is_an_attribute_and_no_other() -> None:
    names = {text.rstrip("?+.") for names in OPERANDS.values() for text in names.split()}
    assert names == set(Operands.__annotations__) == {k for k, v in vars(Operands).items() if isinstance(v, property)}


@pytest.mark.parametrize("name", Operands.__annotations__)
def test_a_name_gives_the_source_at_its_place(name: str) -> None:
    """Also where the place differs between ops. A name is optional, or means the rest, in every op or in none."""
    hint = Operands.__annotations__[name]
    for op, text in OPERANDS.items():
        for k, word in enumerate(text.split()):
            if word.rstrip("?+.") != name:
                continue
            sources = tuple(B.const(n, dt.int32) for n in range(k + 2))
            u = UOp(op, sources)
            assert getattr(u, name) == (sources[k:] if word.endswith(("...", "+")) else sources[k])
            assert word.endswith(("...", "+")) == (hint == "tuple[Self, ...]")
            if word.endswith("?"):
                assert hint == "Self | None"
                assert getattr(UOp(op, sources[:k]), name) is None


def test_a_wrong_name_is_an_error() -> None:
    with pytest.raises(AttributeError, match=r"^RANGE has no source named gate; its sources are: bound$"):
        _ = B.range_(4, 0).gate
    with pytest.raises(AttributeError, match=r"^CONST has no source named lhs; its sources are: none$"):
        _ = B.const(1, dt.int32).lhs
    with pytest.raises(AttributeError, match=r"^CONST has no source named ranges"):
        _ = B.const(1, dt.int32).ranges
    with pytest.raises(AttributeError, match=r"^RANGE needs the sources bound, got 0: bound is missing$"):
        _ = UOp(Op.RANGE).bound
