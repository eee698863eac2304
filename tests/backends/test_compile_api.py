"""`uops.compile`: a graph or a file, on a backend by name."""

from __future__ import annotations

import threading
from pathlib import Path

import numpy as np
import pytest

import uops
from uops.backends import api
from uops.backends.contract import Backend, Capabilities, Inputs
from uops.backends.registry import UnknownBackend
from uops.compiler import Compiled
from uops.spec.errors import SpecError, SpecTypeError, SpecValueError
from uops.spec.ir import build as b
from uops.spec.ir import dtypes as dt
from uops.spec.ir.node import UOp
from uops.spec.ir.ops import Op
from uops.spec.ir.text import show
from uops.spec.result import Result

GRAPH = b.add(b.param(0, (3,), dt.float32), b.param(1, (3,), dt.float32))
INPUTS = {"p0": np.array([1, 2, 3], np.float32), "p1": np.array([10, 20, 30], np.float32)}


class Recorder(Backend):
    """A backend that is no compiler target; it notes the thread that made it."""

    name = "recorder"

    def __init__(self, tag: str = "none") -> None:
        self.tag, self.thread = tag, threading.get_ident()

    def version(self) -> str:
        return "1"

    def capabilities(self) -> Capabilities:
        return Capabilities()

    def run(self, graph: UOp, inputs: Inputs) -> Result:
        return Result((self.tag, id(self), self.thread, graph), {})


RECORDER = f"{__name__}:Recorder"


@pytest.fixture
def recorder(monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setattr(api.registry, "import_factory", lambda name: Recorder)
    return "recorder"


def test_a_dialect_that_is_none_is_an_error_that_lists_them() -> None:
    with pytest.raises(SpecValueError, match=r"tensor, callified, .*'klingon'"):
        uops.compile(GRAPH, dialect="klingon")


def test_a_dialect_of_another_type_is_an_error() -> None:
    with pytest.raises(SpecTypeError, match="compile takes a Dialect or the name of one, got int"):
        uops.compile(GRAPH, "interp", dialect=5)  # type: ignore[arg-type]


def test_compile_of_a_graph_is_a_program_of_the_compiler() -> None:
    f = uops.compile(GRAPH)
    assert isinstance(f, Compiled)
    assert f(INPUTS).values[0].tolist() == [11, 22, 33]


@pytest.mark.parametrize("kind", [str, Path])
def test_compile_takes_the_path_of_a_file(kind: type, tmp_path: Path) -> None:
    file = tmp_path / "x.uops"
    file.write_text(show(GRAPH))
    assert uops.compile(kind(file), backend="llvm")(INPUTS).values[0].tolist() == [11, 22, 33]


def test_an_ill_formed_graph_is_refused_with_its_claim() -> None:
    bad = UOp(Op.ADD, (b.param(0, (3,), dt.float32), b.param(1, (3,), dt.int8)))
    with pytest.raises(SpecError, match=r"ADD\.C2"):
        uops.compile(bad)


def test_a_loop_that_nothing_closes_is_refused() -> None:
    with pytest.raises(SpecError, match=r"every Range of the body is closed"):
        uops.compile(b.range_(4, 0))


def test_an_unknown_backend_lists_the_known_ones() -> None:
    with pytest.raises(UnknownBackend, match="known: llvm"):
        uops.compile(GRAPH, backend="nobody")


def test_any_other_backend_gets_graph_and_inputs_at_each_call(recorder: str) -> None:
    assert uops.compile(GRAPH, backend=recorder)(INPUTS).values[3] is GRAPH


def test_options_make_an_instance_of_its_own(recorder: str) -> None:
    plain, tagged = uops.compile(GRAPH, recorder)(INPUTS), uops.compile(GRAPH, recorder, tag="x")(INPUTS)
    assert (plain.values[0], tagged.values[0]) == ("none", "x")
    assert plain.values[1] == uops.compile(GRAPH, recorder)(INPUTS).values[1] != tagged.values[1]


def test_an_instance_serves_one_thread(recorder: str) -> None:
    found: list[Result] = []
    threads = [threading.Thread(target=lambda: found.append(uops.compile(GRAPH, recorder)(INPUTS))) for _ in range(2)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert len({r.values[2] for r in found} | {r.values[1] for r in found}) >= 2
    assert all(r.values[2] != threading.get_ident() for r in found)
