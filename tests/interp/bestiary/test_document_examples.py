"""The second document's own examples, as files: what it says about them is what they give."""

from __future__ import annotations

from pathlib import Path

import pytest

from uops.fuzz.reduce.corpus import find_check_failures, load_file_test
from uops.interp.bestiary import run
from uops.spec.bestiary.legalize import legalize
from uops.spec.errors import Trap
from uops.spec.ir import dtypes as dt
from uops.spec.verify.dialects import Dialect
from uops.spec.verify.verifier import verify
from uops.spec.wmma import (
    Accumulator,
    AccumulatorBasis,
    Citation,
    Descriptor,
    LaneMapStatus,
    affine_map,
    validate_and_register_descriptor,
)

FILES = sorted((Path(__file__).parents[2] / "examples" / "bestiary").glob("*.uops"))
#: What the document says of each op has a file.
# fmt: off
EXAMPLES = {
    "range", "end", "reduce_axis", "reduce", "bufferize", "index", "load", "store", "sink", "after", "vectorize", "gep", "cat",
    "unroll", "contract", "wmma", "if", "define_var", "special", "reshape",
}
# fmt: on
_TEXT = Citation("this test", "the example's fragments")
_ROWS = affine_map("16:row 2:col*8", "8:col")


@pytest.fixture(scope="module", autouse=True)
def fragments() -> None:
    """The document leaves open which lane holds what: in the example, lane t holds half of row t % 16."""
    exact = Accumulator("one rounding", AccumulatorBasis.ASSUMED, _TEXT, bits=23)
    maps = (_ROWS, _ROWS, _ROWS)
    validate_and_register_descriptor(
        Descriptor(
            "by_rows_16x16x16",
            "example",
            "",
            (16, 16, 16),
            dt.float16,
            dt.float32,
            32,
            *maps,
            exact,
            _TEXT,
            LaneMapStatus.UNCONFIRMED,
        )
    )


def test_every_example_of_the_document_has_a_file() -> None:
    assert EXAMPLES <= {p.stem for p in FILES}


@pytest.mark.parametrize("path", FILES, ids=lambda p: p.stem)
def test_example_is_well_formed(path: Path) -> None:
    graph = load_file_test(path).graph
    verify(graph, Dialect.BESTIARY)
    verify(legalize(graph))


@pytest.mark.parametrize("schedule", [None, 1, 2])
@pytest.mark.parametrize("path", FILES, ids=lambda p: p.stem)
def test_example_gives_what_the_file_says(path: Path, schedule: int | None) -> None:
    test = load_file_test(path)
    if test.trap:
        with pytest.raises(Trap):
            run(test.graph, test.inputs, schedule=schedule)
        return
    result = run(test.graph, test.inputs, schedule=schedule)
    assert test.checks
    assert not find_check_failures(test, {**dict(enumerate(result.values)), **result.buffers})
