"""The table against the documents: every name that they print has a row."""

import inspect
import json
import re
from dataclasses import replace
from pathlib import Path

import pytest

from uops.spec import rulings
from uops.spec.bestiary.tables import (
    AXIS_NAMES,
    EXPANDABLE,
    EXPANDABLE_BY_NAME,
    PRIORITY,
    RANGE_ENDING,
    REDUCE_IDENTITIES,
    REDUCE_OPS,
)
from uops.spec.ir.args import ARG_TYPE
from uops.spec.ir.node import RULES
from uops.spec.ir.ops import BINARY, TERNARY, UNARY, Family, Op
from uops.spec.ir.scope import RANGE_ENDING as CLOSING
from uops.spec.rows.named.base import ExecutedBy
from uops.spec.rows.rows import (
    CLAIMS,
    NAMED_ROWS,
    ROWS,
    STATED_CLAIMS,
    find_rows,
    hash_spec_without_executors,
    map_printed_names_to_row_ids,
    row_of,
    to_json,
)
from uops.spec.rulings import RULINGS


def _words(text: str) -> list[str]:
    return text.split()


# Transcribed by hand from the documents.
TINYSPEC = _words("""
Param Buffer Const Binary
Permute Flip Reshape Expand Pad Shrink Index Stack Replicated Slice Bitcast
Reduce
Function Call Tuple GetTuple
Load Copy Contiguous
Store
Range End After Group Sink Linear
Recip Trunc Cast Add Mul Max Mod Idiv CmpLt CmpNe Xor Or And Shr Shl Where
Neg Sub Div CmpGt CmpGe CmpLe CmpEq Not Exp2 Log2 Sin Sqrt Pow Mulacc Threefry
ContiguousBackward Detach
Barrier Ins Special If Endif Wmma Custom AtomicAdd CustomFunction Program Source
Assign
dtype shape device min_max axis
GLOBAL LOCAL REG
WARP THREAD LOOP REDUCE GROUP_REDUCE UPCAST UNROLL
Split Padto Swap Nolocals TC
gemm prefix_sum arange gather scatter_add
broadcast scatter reduce allgather reduce_scatter allreduce
""") + ["Extracts inputs", "Runs the function", "Parameterizes", "Wraps the body", "Returns", "resolved"]
TINYSPEC += ["Callify", "Rangeify", "Optimize", "Instruction Selection", "Linearize", "Register/Memory Plan", "Render"]
BESTIARY = _words("""
RANGE END
REDUCE_AXIS REDUCE ALLREDUCE Min
BUFFER BufferView BUFFERIZE INDEX POINTER_INDEX LOAD STORE
SINK CALL FUNCTION TUPLE GET_TUPLE PROGRAM LINEAR SOURCE PROGRAM_BINARY AFTER BARRIER
VECTORIZE GEP VConst CAT PtrCat
UNROLL CONTRACT
WMMA SPECIAL
IF ENDIF
PARAM DEFINE_LOCAL DEFINE_VAR DEFINE_REG BIND UNIQUE LUNIQUE DEVICE CONST
RESHAPE PERMUTE EXPAND PAD SHRINK FLIP
Unary Binary Ternary Cast BitCast
Copy MStack MSelect Multi Group Detach Contiguous ContiguousBackward Precast Custom CustomI CustomFunction
Placeholder Loop Global Thread Warp Local GroupReduce Upcast Reduce Unroll
Priority ReduceOp
""") + ["Range-Ending Operations", "Expandable Operations"]


@pytest.mark.parametrize(("document", "names"), [("tinyspec", TINYSPEC), ("bestiary", BESTIARY)])
def test_every_printed_name_has_a_row(document, names):
    assert set(map_printed_names_to_row_ids(document)) == set(names)
    ids = {row.id for row in ROWS.values()} | set(NAMED_ROWS)
    for name, rows in map_printed_names_to_row_ids(document).items():
        assert rows, name
        assert set(rows) <= ids, name


def test_families_mean_their_ops():
    names = map_printed_names_to_row_ids("bestiary")
    for family, ops in (("Unary", UNARY), ("Binary", BINARY), ("Ternary", TERNARY)):
        assert {row_of(id).op for id in names[family]} == ops


def test_names_that_both_documents_use_resolve_to_their_forms():
    assert row_of(map_printed_names_to_row_ids("tinyspec")["Range"][0]).op is Op.RANGE
    assert row_of(map_printed_names_to_row_ids("bestiary")["RANGE"][0]).op is Op.B_RANGE
    assert row_of(map_printed_names_to_row_ids("bestiary")["END"][0]).op is Op.END
    assert map_printed_names_to_row_ids("tinyspec")["Expand"] == ("Movement/Expand", "Stage/expand")
    assert map_printed_names_to_row_ids("tinyspec")["gather"] == ("Composition/gather", "Collective/gather")
    with pytest.raises(KeyError):
        map_printed_names_to_row_ids("appendix")


def test_rows_stand_in_the_order_of_the_documents():
    core = [op for op, row in ROWS.items() if row.family is not Family.BESTIARY]
    assert core == [op for op in Op if op in core]
    printed = {name: k for k, name in enumerate(TINYSPEC)}
    assert [printed[ROWS[op].tinyspec] for op in core if op not in (Op.CONTIGUOUS,)] == sorted(
        printed[ROWS[op].tinyspec] for op in core if op not in (Op.CONTIGUOUS,)
    )


@pytest.mark.parametrize("op", Op, ids=lambda o: o.name)
def test_row_is_complete(op):
    row = ROWS[op]
    assert row.op is op
    assert row.id == f"{row.family.value}/{row.tinyspec or row.bestiary}"
    assert row.arg_type is ARG_TYPE.get(op)
    assert row.semantics.endswith(".")
    assert [c.id for c in row.claims] == [f"{op.name}.C{k}" for k in range(1, len(row.claims) + 1)]
    for slot, rules in RULES.items():
        assert getattr(row, slot[1:]) is rules[op]
    assert (row.family is Family.BESTIARY) == (row.document == "bestiary") or op is Op.MIN
    assert isinstance(row.decomposition, str) or callable(row.decomposition)
    assert isinstance(row.decomposition, str) == (row.decomposition == "core: a primitive" or "R17" in str(row.decomposition))


def test_ids_are_unique():
    assert len({id.lower() for id in (*(row.id for row in ROWS.values()), *NAMED_ROWS)}) == len(ROWS) + len(NAMED_ROWS)
    assert CLAIMS.keys().isdisjoint(STATED_CLAIMS)
    assert len(STATED_CLAIMS) == sum(len(r.claims) for r in NAMED_ROWS.values())
    assert len(CLAIMS) == sum(len(r.claims) for r in ROWS.values()) + sum(len(d["claims"]) for d in to_json()["dialects"])


def test_lookup_by_id_name_and_glob():
    assert row_of("movement/PAD") is row_of("pad") is ROWS[Op.PAD]
    assert row_of("stage/EXPAND") is NAMED_ROWS["Stage/expand"]
    assert find_rows("Load/*") == find_rows("load.c2") == [ROWS[Op.LOAD]]
    assert find_rows("expand") == [ROWS[Op.EXPAND], NAMED_ROWS["Gradient/Expand"], NAMED_ROWS["Stage/expand"]]
    assert find_rows("axistype.local.c*") == [NAMED_ROWS["AxisType/LOCAL"]]
    assert {r.family for r in find_rows("Marker/*")} == {Family.MARKER}
    assert find_rows("nothing") == []
    with pytest.raises(KeyError):
        row_of("Movement/Nothing")


def test_json_is_plain_complete_and_hashed():
    data = to_json()
    assert json.loads(json.dumps(data)) == data
    assert [o["op"] for o in data["ops"]] == [op.name for op in ROWS]
    assert [r["id"] for r in data["rows"]] == list(NAMED_ROWS)
    assert {c["id"] for o in (*data["ops"], *data["dialects"]) for c in o["claims"]} == set(CLAIMS)
    assert {c["id"] for r in data["rows"] for c in r["claims"]} == set(STATED_CLAIMS)
    pad = next(o for o in data["ops"] if o["op"] == "PAD")
    assert pad["claims"][1] == {"id": "PAD.C2", "text": "o + s <= s'", "ruling": "R43"}
    assert pad["schema"] == "T o s'"
    assert pad["derived"]["shape"] == "shape.of_pad"
    assert "<lambda>" not in json.dumps([o["derived"] for o in data["ops"]])
    assert len(hash_spec_without_executors()) == 64
    assert hash_spec_without_executors() == hash_spec_without_executors()


def test_hash_changes_with_a_ruling(monkeypatch):
    before = hash_spec_without_executors.__wrapped__()
    monkeypatch.setitem(RULINGS, "R43", RULINGS["R43"]._replace(text="otherwise"))
    assert hash_spec_without_executors.__wrapped__() != before


def test_hash_changes_with_a_claim_of_a_named_row(monkeypatch):
    before, row = hash_spec_without_executors.__wrapped__(), NAMED_ROWS["Stage/expand"]
    claims = (replace(row.claims[0], text="otherwise"), *row.claims[1:])
    monkeypatch.setitem(NAMED_ROWS, row.id, replace(row, claims=claims))
    assert hash_spec_without_executors.__wrapped__() != before


def test_hash_does_not_change_with_what_executes_a_row(monkeypatch):
    before, row = hash_spec_without_executors.__wrapped__(), NAMED_ROWS["Stage/expand"]
    monkeypatch.setitem(NAMED_ROWS, row.id, replace(row, executed_by=ExecutedBy(("elsewhere:run",))))
    assert hash_spec_without_executors.__wrapped__() == before


# Rulings


def test_rulings_are_read_in_order_and_complete():
    numbers = [int(id[1:]) for id in RULINGS if id[0] == "R"]
    assert numbers == sorted(numbers)
    assert [id for id in RULINGS if id[0] == "P"] == ["P1", "P2", "P3"]
    groups = ((1, 29), (30, 32), (40, 65), (70, 89), (90, 98), (100, 131), (133, 133), (140, 142), (145, 146), (151, 152))
    groups += ((156, 158), (161, 192))
    assert numbers == [k for lo, hi in groups for k in range(lo, hi + 1)]
    assert all(r.topic and r.text for r in RULINGS.values())


@pytest.mark.parametrize("text", ["| R01 | a | b |\n| R01 | a | b |", "| R01 | a |", "**P9** no point"])
def test_bad_rulings_are_rejected(text):
    with pytest.raises(ValueError, match="line"):
        rulings.parse_rulings(text)


def test_every_ruling_cited_in_the_sources_exists():
    root = Path(__file__).parents[3]
    cited = {}
    for folder in ("spec", "interp", "compiler", "backends", "fuzz", "tests"):
        for path in (root / folder).rglob("*.py"):
            for id in re.findall(r"\bR\d{2,3}\b", path.read_text(encoding="utf-8")):
                cited.setdefault(id, path)
    assert len(cited) > 60
    assert {id: str(p) for id, p in cited.items() if id not in RULINGS} == {}


# The bestiary's tables


def test_axis_types_have_the_printed_priorities():
    assert {name: t.priority for name, t in AXIS_NAMES.items()} == PRIORITY


def test_range_ending_ops_are_those_that_close_ranges():
    """Calls end the ranges of their arguments only by position; a core Reduce closes its own (tinyspec)."""
    assert {op: k for op, k in RANGE_ENDING.items() if op not in (Op.CALL, Op.FUNCTION)} == {
        op: k for op, k in CLOSING.items() if op is not Op.REDUCE
    }


def test_expandable_ops_have_rows():
    assert set(ROWS) >= EXPANDABLE
    assert sum(map(len, EXPANDABLE_BY_NAME.values())) == len(EXPANDABLE)
    assert set(REDUCE_OPS) == set(REDUCE_IDENTITIES) == {"Add", "Mul", "Max", "Min"}


def test_decompositions_are_functions_of_a_node():
    for row in ROWS.values():
        if callable(row.decomposition):
            expected = 2 if row.family is Family.BESTIARY else 1
            assert len(inspect.signature(row.decomposition).parameters) == expected or row.op is Op.MIN
