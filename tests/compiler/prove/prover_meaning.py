"""The prover's semantics as a meaning that `uops.fuzz.oracles.agreement` can judge: bits in, bits out."""

from typing import Any

import numpy as np
from smt_numpy import evaluate

from uops.backends.arrays import STORAGE
from uops.compiler.prove.model import SMALL, EncodedValue, Representation, SmtEncoder, Unmodelled
from uops.compiler.prove.semantics import encode_op
from uops.compiler.prove.solver import smt
from uops.compiler.prove.solver.solver import SolverWorker
from uops.spec.ir import dtypes as dt
from uops.spec.ir.dtypes import DType
from uops.spec.ir.ops import Op

Bits = Any


def result_of(m: SmtEncoder, op: Op, kinds: tuple[DType, ...], result: DType) -> EncodedValue:
    """The symbolic result on operands x0, x1, ..."""
    operands = [m.make_variable(f"x{k}", d) for k, d in enumerate(kinds)]
    return encode_op(m, op, operands, result if op is Op.CAST else None)


def by_numpy(machine: Representation) -> Any:
    """A meaning that evaluates the terms in NumPy."""

    def meaning(op: Op, kinds: tuple[DType, ...], result: DType, values: tuple[Bits, ...]) -> list[int]:
        m = SmtEncoder(machine)
        try:
            v = result_of(m, op, kinds, result)
        except Unmodelled:
            return [-1] * len(values[0])
        env = {f"x{k}": _argument(m, d, bits) for k, (d, bits) in enumerate(zip(kinds, values, strict=True))}
        env |= {c.first.head: np.ones(len(values[0]), bool) for c in m.choices}
        found = evaluate(v.term if v.bits is None else v.bits, env)
        return _bits(np.broadcast_to(found, len(values[0])), m, v)

    return meaning


def _argument(m: SmtEncoder, d: DType, bits: Bits) -> Any:
    if d is dt.bool_:
        return bits != 0
    if m.representation(d) is Representation.WHOLE:
        return bits.astype(f"u{d.itemsize}").view(f"{'i' if d.is_signed else 'u'}{d.itemsize}").astype(np.int64)
    return bits.astype(np.uint64)


def _bits(found: Any, m: SmtEncoder, v: EncodedValue) -> list[int]:
    if v.dtype.is_float and v.bits is None:
        with np.errstate(all="ignore"):
            return [int(x) for x in found.astype(STORAGE[v.dtype]).view(f"u{v.dtype.itemsize}")]
    width = (1 << v.dtype.bits) - 1
    return [int(x) & width for x in found.tolist()]


def by_solver(worker: SolverWorker) -> Any:
    """A meaning that asks the solver for the values: one query for all elements."""

    def meaning(op: Op, kinds: tuple[DType, ...], result: DType, values: tuple[Bits, ...]) -> list[int]:
        smt.clear_interned_terms()
        assertions, names = [], []
        for k, element in enumerate(zip(*(v.tolist() for v in values), strict=True)):
            m = SmtEncoder()
            operands = [_constant(m, d, bits) for d, bits in zip(kinds, element, strict=True)]
            try:
                v = encode_op(m, op, operands, result if op is Op.CAST else None)
            except Unmodelled:
                return [-1] * len(values[0])
            term = v.term if v.bits is None else v.bits
            for c in m.choices:
                term = smt.substitute(term, c.first, smt.TRUE)
            if v.dtype.is_float and v.bits is None:
                term = smt.app("fp.to_ieee_bv", term, sort=smt.bv(term.sort.bits))
            names.append(f"answer{k}")
            assertions += [*m.facts, smt.equals(smt.var(names[-1], term.sort), term)]
        answer = worker.run_query(smt.render_query(assertions), 1 << 40, names)
        assert answer.result == "sat", answer
        carried = v.dtype in SMALL and v.bits is None
        return [_stored(answer.model[n], result) if carried else int(answer.model[n]) for n in names]

    return meaning


def _constant(m: SmtEncoder, d: DType, bits: int) -> EncodedValue:
    v = m.make_variable("x", d)
    if d is dt.bool_:
        return EncodedValue(d, smt.boolean(bool(bits)))
    word = smt.word(bits, d.bits)
    return EncodedValue(d, smt.substitute(v.term, smt.var("x", smt.bv(d.bits)), word), word if d.is_float else None)


def _stored(v: bool | int, d: DType) -> int:
    """The bits of a float8 that is carried as a float16."""
    with np.errstate(all="ignore"):
        wide = np.array(v, np.uint16).view(np.float16).astype(np.float32)
        return int(wide.astype(STORAGE[d]).view(np.uint8))
