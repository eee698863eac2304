"""Every stage of a lowering, interpreted, gives what the tensor graph gives: integers bit for bit, floats within R32."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from uops.backends import registry
from uops.compiler.config import Config
from uops.compiler.passes.callify.callify import outputs
from uops.compiler.pipeline import stages
from uops.fuzz.generate.graphs import case
from uops.interp import run
from uops.spec.errors import Trap
from uops.spec.ir import build as b
from uops.spec.ir import dtypes as dt
from uops.spec.ir.args import AddrSpace
from uops.spec.ir.axes import AxisType
from uops.spec.ir.node import UOp, substitute, toposort
from uops.spec.ir.ops import Op
from uops.spec.ir.text import parse_file, show

FILES = Path(__file__).parents[3] / "examples" / "programs"
FRESH = Config(verify=False, reuse=False)


def lowered(graph: UOp) -> dict[str, UOp]:
    found = stages(graph, registry.create_backend("llvm").target, FRESH)
    return {k: v for k, v in found.items() if k != "tensor"}


def one_device(graph: UOp) -> bool:
    return not any(isinstance(u.device, tuple) for u in toposort(graph))


def some(shape: tuple[int, ...], d: dt.DType, seed: int) -> Any:
    """Small integers, so that most sums are exact."""
    values = np.random.default_rng(seed).integers(-6, 7, shape)
    return values.astype(getattr(ml_dtypes, d.name) if d.name == "bfloat16" else "bool" if d is dt.bool_ else d.name)


def inputs_of(graph: UOp) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for u in toposort(graph):
        if u.op is Op.PARAM and u.arg.name is not None:
            found[u.arg.name] = u.arg.bounds[1]
        elif u.op is Op.PARAM:
            found[f"p{u.arg.slot}"] = some(tuple(int(n) for n in u.shape), u.dtype, u.arg.slot)
        elif u.op is Op.BUFFER:
            found[f"b{u.arg.unique}"] = some(u.shape, u.dtype, u.arg.unique)
    return found


def close(want: Any, got: Any) -> bool:
    """Float stages may round a sum, a product or an elementary function elsewhere; 64 units in the last place are few."""
    if want.dtype.kind in "iub":
        return bool(np.array_equal(want, got))
    eps = float(ml_dtypes.finfo(want.dtype).eps)
    x, y = want.astype(np.float64), got.astype(np.float64)
    return bool(np.allclose(x, y, rtol=64 * eps, atol=64 * eps, equal_nan=True))


def differences(graph: UOp, inputs: dict[str, Any], **options: Any) -> Iterator[str]:
    want = run(graph, inputs)
    fresh = {f"b{out.buffer.arg.unique}" for out in outputs(graph)}  # may be the key of a Buffer that only dead code has
    given = {k: v for k, v in inputs.items() if k not in fresh}
    for stage, g in lowered(graph).items():
        got = run(g, given, **options).buffers
        for k, (value, out) in enumerate(zip(want.values, outputs(graph), strict=True)):
            if value.size:
                found = got[f"b{out.buffer.arg.unique}"][: value.size].reshape(value.shape)
                if not close(value, found):
                    yield f"value {k} after {stage}: {value.ravel()[:8]} is {found.ravel()[:8]}\n{show(g)}"
        for key, value in want.buffers.items():
            if value.size and not close(value, got[key].reshape(value.shape)):
                yield f"{key} after {stage}\n{show(g)}"


@pytest.mark.parametrize("path", sorted(FILES.glob("*.uops")), ids=lambda path: path.stem)
def test_the_stages_of_every_example_program_agree(path: Path) -> None:
    graph = parse_file(path)
    inputs = inputs_of(graph)
    assert list(differences(graph, inputs)) == []
    assert list(differences(graph, inputs, lanes=True)) == []


def generated(first: int, count: int, elements: int) -> Iterator[Any]:
    """The first `count` cases for one device."""
    found = (case(seed, max_elements=elements) for seed in itertools.count(first))
    return itertools.islice((c for c in found if one_device(c.graph)), count)


@pytest.mark.parametrize("first", range(0, 100, 25))
def test_the_stages_of_generated_graphs_agree(first: int) -> None:
    for c in generated(first, 15, 40):
        assert list(differences(c.graph, c.inputs)) == [], show(c.graph)


@pytest.mark.parametrize("first", [200, 300])
def test_the_stages_of_generated_graphs_agree_under_every_schedule(first: int) -> None:
    for c in generated(first, 2, 12):
        for schedule in range(20):
            assert list(differences(c.graph, c.inputs, schedule=schedule)) == [], f"schedule {schedule}\n{show(c.graph)}"


def test_a_plan_that_lets_live_values_overlap_is_detected() -> None:
    """The planned launch of two live temporaries, with one moved onto the other."""
    x = b.param(0, (4,), dt.int32)
    first, second = b.contiguous(b.mul(x, 3)), b.contiguous(b.add(x, 1))
    graph = b.add(b.reduce(first, Op.ADD, (0,)), b.mul(b.reduce(second, Op.MAX, (0,)), b.flip(b.add(first, second), (True,))))
    planned = lowered(graph)["plan"]
    slices = [u for u in toposort(planned) if u.op is Op.SLICE]
    assert len({u.src[1].arg.value for u in slices}) > 1
    inputs = {"p0": np.arange(4, dtype=np.int32)}
    assert run(planned, inputs).buffers
    low, high = sorted(slices, key=lambda u: int(u.src[1].arg.value))[:2]
    onto = b.index(int(low.src[1].arg.value) + 4)
    wrong = substitute(planned, {high: high.replace(src=(high.src[0], onto))})
    with pytest.raises(Trap, match=r"has overwritten slice of .* \(R126\)|overlap, and the Call writes one of them \(R126\)"):
        run(wrong, inputs)


def test_private_memory_and_lanes_are_exercised_by_hand_where_the_compiler_makes_none() -> None:
    """A guard: the target above has neither LOCAL memory nor lanes, so that other tests must have them."""
    for graph in lowered(b.reduce(b.param(0, (4, 4), dt.float32), Op.ADD, (1,))).values():
        for u in toposort(graph):
            assert not (u.op is Op.BUFFER and u.arg.addrspace is AddrSpace.LOCAL)
            assert not (u.op is Op.RANGE and u.arg.type in (AxisType.LOCAL, AxisType.WARP))
