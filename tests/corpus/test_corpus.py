"""Every bug found is a file here; each runner is asked again, first thing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from uops.backends.registry import BrokenBackend, create_backend
from uops.compiler import Compiled, Config
from uops.fuzz.bisect.bisect import bisect
from uops.fuzz.reduce.corpus import FileTest, find_check_failures, load_file_test
from uops.interp import run
from uops.spec.errors import Trap, Unsupported
from uops.spec.verify.dialects import Dialect
from uops.spec.verify.infer import infer_tensor_kernel_or_bestiary_dialect
from uops.spec.verify.verifier import find_broken_claims

FILES = sorted(Path(__file__).parent.glob("*.uops"))
#: Of schedules: enough to have each kind of OptOp on some kernel of the files. The others are asked by `tox -e slow`.
SEEDS = (range(4), pytest.param(range(4, 12), marks=pytest.mark.slow))
FOUND = (Path(__file__).parents[2] / "FOUND.md").read_text(encoding="utf-8")


def _outputs(result: Any) -> dict[int | str, Any]:
    return {**dict(enumerate(result.values)), **result.buffers}


def _judge(test: FileTest, runner: Any) -> None:
    if test.error:
        claim, dialect = test.error
        assert [b.claim.id for b in find_broken_claims(test.graph, Dialect(dialect))] == [claim]
        return
    if test.trap:
        with pytest.raises(Trap):
            runner(test.graph, test.inputs)
        return
    assert not find_check_failures(test, _outputs(runner(test.graph, test.inputs)))


@pytest.mark.parametrize("path", FILES, ids=lambda p: p.stem)
def test_the_interpreter_gives_what_the_file_says(path: Path) -> None:
    _judge(load_file_test(path), run)


@pytest.mark.parametrize("tier", ["full", "fast"])
@pytest.mark.parametrize("path", FILES, ids=lambda p: p.stem)
def test_compiled_code_gives_what_the_file_says(path: Path, tier: str) -> None:
    test = load_file_test(path)
    if test.trap:
        return  # R26: compiled code need not trap
    _judge(test, create_backend("llvm", tier=tier).run)


@pytest.mark.parametrize("seeds", SEEDS)
@pytest.mark.parametrize("name", ["llvm", "opencl"])
@pytest.mark.parametrize("path", FILES, ids=lambda p: p.stem)
def test_drawn_schedules_give_what_the_file_says(path: Path, name: str, seeds: range) -> None:
    """Vectors, workgroups and padding of every kind: what OptOps break is not seen in the compiler's own choice alone."""
    test = load_file_test(path)
    if test.trap or test.error:
        return
    try:
        target = create_backend(name).target
    except (BrokenBackend, Unsupported) as e:
        pytest.skip(str(e))
    for seed in seeds:
        program = Compiled(
            test.graph, target, Config(reuse=False, verify=True, forced=seed), infer_tensor_kernel_or_bestiary_dialect(test.graph)
        )
        assert not find_check_failures(test, _outputs(program(test.inputs))), f"UOPS_FORCED={seed}"


@pytest.mark.parametrize("name", ["aarch64:sve", "riscv64:v", "s390x", "i686", "wasm"])
def test_other_processors_give_what_the_files_say(name: str) -> None:
    try:
        backend = create_backend(name, tier="fast")
    except (BrokenBackend, Unsupported) as e:
        pytest.skip(str(e))
    for path in FILES:
        test = load_file_test(path)
        if not test.trap and not test.error:
            _judge(test, backend.run)


@pytest.mark.parametrize("path", FILES, ids=lambda p: p.stem)
def test_every_stage_gives_what_the_one_before_gives(path: Path) -> None:
    """What a stage reads and nobody wrote may be right on a machine."""
    test = load_file_test(path)
    if not test.trap and not test.error:
        found = bisect(test.graph, test.inputs, create_backend("llvm").target)
        assert found is None, str(found)


@pytest.mark.parametrize("path", FILES, ids=lambda p: p.stem)
def test_every_file_has_its_line(path: Path) -> None:
    assert path.name in FOUND


def test_the_corpus_is_first(request: pytest.FixtureRequest) -> None:
    here = [Path(__file__).parent in item.path.parents for item in request.session.items]
    assert here == sorted(here, reverse=True)


def test_a_wrong_result_is_noticed() -> None:
    test = load_file_test(FILES[0])
    assert find_check_failures(test, {0: np.array([1, 1, 1, np.nan], np.float16)})
    assert find_check_failures(test, {0: np.ones(3, np.float16)})
    assert find_check_failures(test, {})
