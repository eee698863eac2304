"""Whether a device computes what strict results need, asked by one small kernel when it is opened.

The text of that kernel is rendered as that of every other one. Its work-items are lanes of one workgroup, so that a compiler may
make vectors of them. Sums, products, quotients, square roots and conversions of both floats are compared with the host's, bit by
bit. They show if subnormals are kept, and how the device rounds. Products are added where rounding twice gives another result.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from uops.backends.cstyle.language import Language
from uops.backends.opencl.render import render
from uops.spec.ir import build as B
from uops.spec.ir import dtypes as dt
from uops.spec.ir.axes import AxisType
from uops.spec.ir.dtypes import DType
from uops.spec.ir.node import UOp, toposort
from uops.spec.ir.ops import Op

Array = Any
#: Work-items of the kernel, and so operands of each op.
LANES = 64
_INTEGER = {dt.float32: dt.int32, dt.float64: dt.int64}
_OTHER = {dt.float32: dt.float64, dt.float64: dt.float32}
#: x, y, z and x * y + z, rounded once. Rounded twice, the first one is a tie, the second is 0, and the third is subnormal.
_MULACCS: dict[DType, tuple[tuple[str, str, str, str], ...]] = {
    dt.float32: (
        ("0x1.001p0", "0x1.001p0", "0x1p-70", "0x1.002002p0"),
        ("0x1.000002p0", "0x1.fffffcp-1", "-0x1p0", "-0x1p-46"),
        ("0x1p-126", "0x1p-1", "0x1p-149", "0x1.000004p-127"),
    ),
    dt.float64: (
        ("0x1.0000004p0", "0x1.0000002p0", "0x1p-150", "0x1.0000006000001p0"),
        ("0x1.0000000000001p0", "0x1.ffffffffffffep-1", "-0x1p0", "-0x1p-104"),
        ("0x1p-1022", "0x1p-1", "0x1p-1074", "0x0.8000000000001p-1022"),
    ),
}


class _Question(NamedTuple):
    """An op of the probe: its node of x, y and z, and the host's function of them."""

    name: str
    node: Callable[[UOp, UOp, UOp], UOp]
    host: Callable[[Array, Array, Array], Array]


#: Questions whose results are as wide as their operands. The results of Mulacc are known only where they are listed.
_QUESTIONS = (
    _Question("a sum", lambda x, y, z: B.add(x, y), lambda x, y, z: x + y),
    _Question("a product", lambda x, y, z: B.mul(x, y), lambda x, y, z: x * y),
    _Question("a quotient", lambda x, y, z: B.div(x, y), lambda x, y, z: x / y),
    _Question("a reciprocal", lambda x, y, z: B.build_alu_with_promotion(Op.RECIP, x), lambda x, y, z: 1 / x),
    _Question("a square root", lambda x, y, z: B.build_alu_with_promotion(Op.SQRT, x), lambda x, y, z: np.sqrt(x)),
)
#: An integer that lies a little above the middle of two float32. Rounded twice, it becomes the lower one.
_ABOVE_MIDDLE = (1 << 62) + (1 << 38) + 1
_MULACC = _Question("a product and sum, rounded once", B.mulacc, lambda x, y, z: x)


def render_probe(language: Language) -> str:
    """Return the text of the kernel. For each float its arguments are operands, results, and conversions to the other float."""
    lane = B.range_(LANES, 0, AxisType.LOCAL)
    stores = []
    for k, (d, other) in enumerate(_OTHER.items()):
        operands, results = B.param(3 * k, (3 * LANES,), d), B.param(3 * k + 1, ((len(_QUESTIONS) + 1) * LANES,), d)
        x, y, z = (B.load(B.at(operands, B.add(lane, B.index(j * LANES)))) for j in range(3))
        for j, q in enumerate((*_QUESTIONS, _MULACC)):
            stores.append(B.store(B.at(results, B.add(lane, B.index(j * LANES))), q.node(x, y, z)))
        converted = B.param(3 * k + 2, (2 * LANES,), other)
        for j, value in enumerate((x, B.bitcast(x, _INTEGER[d]))):
            stores.append(B.store(B.at(converted, B.add(lane, B.index(j * LANES))), B.cast(value, other)))
    return render(UOp(Op.LINEAR, tuple(toposort(B.end(B.group(*stores), lane)))), language)


def create_probe_arrays() -> list[Array]:
    """Return the arguments of the kernel: operands from all exponents, some of them subnormal, and outputs of zeros."""
    rng, arrays = np.random.default_rng(2024), list[Array]()
    for d, other in _OTHER.items():
        word, float_ = np.dtype(f"u{d.itemsize}"), np.dtype(d.name)
        operands = rng.integers(0, np.iinfo(word).max, (3, LANES), word).view(float_)
        ordinary = np.exp2(rng.uniform(-3, 3, (3, LANES))).astype(float_)
        operands = np.where(np.arange(LANES) % 2 | ~np.isfinite(operands), ordinary, operands)
        operands[0, 4:12] = np.finfo(float_).smallest_subnormal * rng.integers(1, 1 << 20, 8)
        operands[:, : len(_MULACCS[d])] = np.array([[float.fromhex(t) for t in row[:3]] for row in _MULACCS[d]]).T
        if d is dt.float64:
            operands.view(np.int64)[0, 12] = _ABOVE_MIDDLE
        arrays += [operands, np.zeros((len(_QUESTIONS) + 1, LANES), float_), np.zeros((2, LANES), other.name)]
    return arrays


def find_arithmetic_fault(arrays: list[Array]) -> str | None:
    """Return the first result of the kernel, in words, that is not the host's; None if there is none."""
    for k, (d, other) in enumerate(_OTHER.items()):
        operands, results, converted = arrays[3 * k : 3 * k + 3]
        integer = _INTEGER[d]
        with np.errstate(all="ignore"):
            expected = {q.name: q.host(*operands) for q in _QUESTIONS}
            expected |= {
                _MULACC.name: np.array([float.fromhex(row[3]) for row in _MULACCS[d]], d.name),
                f"a conversion to {other}": operands[0].astype(other.name),
                f"a conversion of {integer} to {other}, with the bits": operands[0].view(integer.name).astype(other.name),
            }
        rows = dict(zip(expected, (*results[:-1], results[-1][: len(_MULACCS[d])], *converted)))
        for name, wanted in expected.items():
            got = rows[name]
            same = (got.view(f"u{got.itemsize}") == wanted.view(f"u{got.itemsize}")) | (np.isnan(got) & np.isnan(wanted))
            if not same.all():
                lane = int(np.argmin(same))
                x = ", ".join(float(v).hex() for v in operands[:, lane])
                return f"{name} of {d} is wrong: of {x} it gives {float(got[lane]).hex()}, expected {float(wanted[lane]).hex()}"
    return None
