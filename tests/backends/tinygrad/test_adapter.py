"""The tinygrad adapter: what it declares, what it writes, and, where tinygrad is installed, that values and effects arrive."""

from __future__ import annotations

import multiprocessing
import re
import shutil
import sys
from collections.abc import Callable
from fnmatch import fnmatchcase
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from uops.backends import registry
from uops.backends.arrays import STORAGE
from uops.backends.contract import Backend, Capabilities
from uops.backends.tinygrad import adapter, forms
from uops.interp import run
from uops.spec.errors import SpecError, Unsupported
from uops.spec.extras import install_command
from uops.spec.ir import build as b
from uops.spec.ir import dtypes as dt
from uops.spec.ir.node import UOp
from uops.spec.ir.ops import Op
from uops.spec.rows.rows import ROWS
from uops.spec.verify.dialects import TENSOR_OPS

ABSENT = "tinygrad is not installed (extra `peers`)"


def test_every_tensor_op_has_a_form_or_a_declared_reason() -> None:
    declared = {op for op in TENSOR_OPS if any(fnmatchcase(ROWS[op].id, m.row) for m in adapter.UNSUPPORTED)}
    assert set(forms.FORMS) | declared == TENSOR_OPS
    assert not set(forms.FORMS) & declared


def test_what_is_declared_missing_names_rows_and_says_why() -> None:
    ids = {row.id for row in ROWS.values()}
    capabilities = Capabilities(unsupported=adapter.UNSUPPORTED)
    assert all(m.row in ids and len(m.reason) > 10 for m in adapter.UNSUPPORTED)
    assert capabilities.missing("Movement/Replicated", dt.float32) is not None
    assert capabilities.missing("Movement/Pad", dt.float32) is None


def test_without_tinygrad_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tinygrad", None)
    with pytest.raises(SpecError, match=re.escape(install_command("peers"))):
        registry.create_backend("tinygrad")


def test_without_clang_the_x86_device_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda name: None)
    with pytest.raises(SpecError, match="clang"):
        registry.create_backend("tinygrad-x86")


def _views() -> tuple[UOp, UOp, UOp]:
    one, two, x = b.buffer(8, dt.int32, unique=1), b.buffer(4, dt.int32, unique=2), b.param(0, (4,), dt.int32)
    body = b.sink(b.store(b.param(1, (4,), dt.int32), b.param(0, (4,), dt.int32)))
    called = b.after(two, b.call(body, x, two, written=(1,)))
    return one, two, b.sink(b.store(b.flip(b.shrink(one, (2,), (4,)), (True,)), x), b.store(called, x))


def test_the_buffers_of_a_root_are_those_below_the_targets_of_its_stores_and_calls() -> None:
    one, two, root = _views()
    written = forms.TranslationScope(_no_library(), "tinygrad", None).map_buffers_to_writers(root)
    assert {buffer: [u.op for u in effects] for buffer, effects in written.items()} == {one: [Op.STORE], two: [Op.CALL, Op.STORE]}
    assert forms.find_memory_along_first_sources(b.reshape(one, (2, 4))) is one
    assert forms.find_memory_along_first_sources(b.const(1, dt.int32)) is None


def _no_library() -> forms.TinygradApi:
    return forms.TinygradApi(None, None, None, {}, "NONE")


def test_an_op_without_a_form_is_refused_by_name() -> None:
    library = forms.TinygradApi(None, SimpleNamespace(const=lambda value, dtype: value), None, {dt.float32: None}, "NONE")
    with pytest.raises(Unsupported, match="REPLICATED"):
        forms.TranslationScope(library, "tinygrad", None)[b.replicated(b.const(1.0, dt.float32))]


# --------------------------------------------------------------------------------------------------------- with tinygrad


@pytest.fixture(scope="module")
def tinygrad() -> Backend:
    pytest.importorskip("tinygrad", reason=ABSENT)
    return registry.create_backend("tinygrad")


def _inputs(**arrays: Any) -> dict[str, Any]:
    return {k: np.asarray(v) for k, v in arrays.items()}


X, Y = b.param(0, (2, 3), dt.int32), b.param(1, (3,), dt.int32)
TWO = _inputs(p0=np.arange(6, dtype=np.int32).reshape(2, 3), p1=np.array([7, -8, 9], np.int32))
BUF = b.buffer(6, dt.int32, unique=1)
FP8 = STORAGE[dt.fp8e5m2]

# fmt: off
GRAPHS: dict[str, tuple[Callable[[], UOp], dict[str, Any]]] = {
    "broadcast":  (lambda: b.add(X, Y), TWO),
    "reduce":     (lambda: b.reduce(X, Op.ADD, (0,)), TWO),
    "movement":   (lambda: b.pad(b.flip(b.permute(X, (1, 0)), (True, False)), (1, 0), (5, 2)), TWO),
    "tuple":      (lambda: b.tuple_(X, b.cast(Y, dt.float64)), TWO),
    "variable":   (lambda: b.shrink(Y, (b.variable("n", 0, 1),), (2,)), {**TWO, "n": 1}),
    "number":     (lambda: b.bitcast(b.variable("k", -5, 5, dtype=dt.int32), dt.uint32), _inputs(k=np.int32(-2))),
    "function":   (lambda: b.get(b.function(b.tuple_(b.neg(b.param(0, (3,), dt.int32))), Y), 0), TWO),
    "gated load": (lambda: b.load(Y, b.neg(Y), UOp(Op.CMPLT, (Y, b.const(0, dt.int32)))), TWO),
    "store":      (lambda: b.sink(b.store(b.shrink(BUF, (2,), (3,)), Y)), {**TWO, "b1": np.arange(6, dtype=np.int32)}),
    "bits":       (lambda: b.flip(b.param(0, (2,), dt.fp8e5m2), (True,)), _inputs(p0=np.array([5, 132], np.uint8).view(FP8))),
    "empty":      (lambda: b.reduce(b.param(0, (2, 0), dt.float32), Op.MUL, (1,)), _inputs(p0=np.zeros((2, 0), np.float32))),
}
# fmt: on


@pytest.mark.parametrize("name", GRAPHS)
def test_a_graph_gives_what_the_interpreter_gives(tinygrad: Backend, name: str) -> None:
    make, inputs = GRAPHS[name]
    graph = make()
    got, want = tinygrad.run(graph, inputs), run(graph, inputs)
    assert len(got.values) == len(want.values)
    assert set(got.buffers) == set(want.buffers)
    for g, w in [*zip(got.values, want.values), *((got.buffers[k], want.buffers[k]) for k in want.buffers)]:
        assert g.dtype == w.dtype
        assert np.array_equal(g, w)


def test_the_version_names_device_and_python(tinygrad: Backend) -> None:
    assert "on PYTHON, Python 3." in tinygrad.version()


def test_kernels_are_compiled_in_the_process_that_is_judged(tinygrad: Backend) -> None:
    tinygrad.run(b.tuple_(b.add(X, Y), b.reduce(X, Op.ADD, (1,))), TWO)
    assert not multiprocessing.active_children()
