"""Instruction selection: only ops and dtypes that the target has.

Takes: EXPANDED. Gives: SELECTED (no Reduce, no index arithmetic, no small float; ops of the target only).
Spec: Lowering Pipeline/Instruction Selection; Decomposed elementwise ops; R08 (index dtype), R15 to R22 (Cast to Threefry), R32
(Reduce value).

Each kernel passes through four steps. Reductions become accumulators (`accumulate`). Index values get a machine width (`widths`).
Ops that the target lacks are decomposed, and small floats become the unsigned integers of their bits, rounded once per op
(`decompose`; `uops.compiler.decompose`). Finally, values are simplified (`simplify`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import NamedTuple

from uops.compiler.decompose import SMALL, lower_elementwise, soften_dtype
from uops.compiler.decompose.elementary import WIDE_RULES, is_elementary
from uops.compiler.decompose.small import is_small
from uops.compiler.decompose.threefry import decompose_threefry
from uops.compiler.ir.accumulators import lower_reduces
from uops.compiler.ir.bodies import map_kernel_bodies
from uops.compiler.ir.buffers import fresh_uniques
from uops.compiler.log import log_transform
from uops.compiler.passes.select.devectorise import lower_to_native_vectors
from uops.compiler.passes.select.index_widths import lower_index_arithmetic
from uops.compiler.passes.select.vectors import has_shaped_values
from uops.compiler.passes.sequential_axes import lower_small_float_atomics_in_sequential_list
from uops.compiler.rewrite.rewriter import Rewriter
from uops.compiler.rewrite.rules import SELECTED_VALUES as VALUES
from uops.compiler.target import Target
from uops.spec.errors import Unsupported
from uops.spec.ir import dtypes as dt
from uops.spec.ir.args import BitcastArg, CastArg
from uops.spec.ir.node import UOp, ops_below, toposort
from uops.spec.ir.ops import ALU, MEMORY_ROOTS, OPAQUE_INSTRUCTIONS, Op


class BodyAfterSelectSteps(NamedTuple):
    """The body of one kernel after each step of instruction selection, in order."""

    accumulate: UOp
    widths: UOp
    decompose: UOp
    simplify: UOp


#: Names of the steps of each kernel, in order.
STEPS = BodyAfterSelectSteps._fields


def select(root: UOp, target: Target, steps: dict[str, UOp] | None = None) -> UOp:
    """Select instructions for every kernel of a launch. Raises CompileError or Unsupported.

    Arguments stay, because the memory of a small float holds its bits. `steps` receives the launch after each of STEPS.
    """
    selected = {body: select_instructions(body, target) for body in dict.fromkeys(c.body for c in root.src)}
    if steps is not None:
        for k, name in enumerate(STEPS):
            steps[name] = map_kernel_bodies(root, lambda body, k=k: selected[body][k])  # type: ignore[misc]
    return map_kernel_bodies(root, lambda body: selected[body].simplify)


def select_instructions(body: UOp, target: Target) -> BodyAfterSelectSteps:
    """Select instructions for one kernel body, and return the body after each of STEPS. Raises CompileError or Unsupported."""
    if body.op is not Op.SINK:  # a list, in which the place of each instruction is given (R166, kernels written by hand)
        summed = lower_small_float_atomics_in_sequential_list(body)
        primitive = _decompose_ops_and_lower_floats_to_bits(summed, target)
        listed = primitive if primitive is body else _insert_unlisted_operands_before_users(primitive)
        _refuse_elementwise_ops_that_target_lacks(listed, target)
        return BodyAfterSelectSteps(body, body, listed, listed)
    uniques = fresh_uniques(body)
    shaped = has_shaped_values(body)
    if shaped:
        accumulated = sized = lower_to_native_vectors(body, target.machine, uniques)
    else:
        accumulated = lower_reduces(body, uniques)
        sized = lower_index_arithmetic(accumulated)
    primitive = _decompose_ops_and_lower_floats_to_bits(sized, target)
    simplified = (ScalarRewriter if shaped else Rewriter)(VALUES)(primitive)
    _refuse_elementwise_ops_that_target_lacks(simplified, target)
    return BodyAfterSelectSteps(accumulated, sized, primitive, simplified)


def _refuse_atomic_adds_of_small_floats(order: Sequence[UOp], target: Target) -> None:
    """Raise Unsupported for an AtomicAdd of a small float: its bits are no integers to add (R56)."""
    small = next((u.value.dtype for u in order if u.op is Op.ATOMICADD and u.value.dtype in SMALL), None)
    if small is not None:
        raise Unsupported(f"AtomicAdd of {small} among concurrent lanes", target.name)


def _refuse_elementwise_ops_that_target_lacks(body: UOp, target: Target) -> None:
    """Raise Unsupported if an elementwise op is left that the target lacks."""
    foreign = (ALU - target.ops) & ops_below(body)
    if foreign:
        raise Unsupported(min(op.name for op in foreign), target.name)


def _insert_unlisted_operands_before_users(linear: UOp) -> UOp:
    """Return an instruction list with each instruction that a listed one uses before it, if it is not listed."""
    listed: dict[UOp, None] = {}

    def is_unlisted(u: UOp) -> bool:
        return u not in listed

    for u in linear.instructions:
        order = toposort(u, gate=is_unlisted)
        listed |= dict.fromkeys(s for s in order if s.op is not Op.CONST and (s.op is not Op.STACK or s.constants_of_stack is None))
    return linear.replace(src=tuple(listed))


class ScalarRewriter(Rewriter):
    """A Rewriter that leaves vectors to the target's compiler: the rules are written for scalars."""

    def apply_first_rule(self, u: UOp) -> UOp | None:
        """Apply the first matching rule to a scalar; None for a vector."""
        return Rewriter.apply_first_rule(self, u) if not u.shape else None


def _decompose_ops_and_lower_floats_to_bits(body: UOp, target: Target) -> UOp:
    """Decompose the elementwise ops that the target lacks, and replace small floats by their bits.

    Raises Unsupported for an AtomicAdd of a small float.
    """
    order = toposort(body)
    has_small_floats = not {u.dtype for u in order}.isdisjoint(SMALL)
    if has_small_floats:
        _refuse_atomic_adds_of_small_floats(order, target)
    elif not any(map(_may_lower, [u for u in order if u.op in _CHANGED])):
        return body
    done: dict[UOp, UOp] = {}  # node -> new node, for the nodes that change
    uses_none_changed = done.keys().isdisjoint
    for u in order:
        if u.op in _LOWERED or (has_small_floats and u.op in ALU) or not uses_none_changed(u.src):
            src = tuple([done.get(s, s) for s in u.src])
            is_kept = u.op in ALU and is_elementary(u) and u.op in target.ops and not is_small(u)
            lowered = (u if src == u.src else u.replace(src=src)) if is_kept else decompose_node(u, src)
            if lowered is not u:
                done[u] = lowered
    log_transform("decompose", body, done.get(body, body), done)
    return done.get(body, body)


def decompose_node(u: UOp, src: tuple[UOp, ...]) -> UOp:
    """Return the decomposition of a node on lowered sources, or the node on these sources if it needs none."""
    if (u.op in MEMORY_ROOTS or u.op in OPAQUE_INSTRUCTIONS) and u.dtype in SMALL:
        return u.replace(src=src, arg=replace(u.arg, dtype=soften_dtype(u.dtype)))
    if u.op in _OWN:
        applies, lower = _OWN[u.op]
        if applies(u):
            return lower(u.replace(src=src))
    if u.op is Op.CONST and u.dtype not in SMALL:
        return u
    if u.op in _CONVERTED or (u.op in ALU and (is_small(u) or is_elementary(u))):
        (lowered,) = lower_elementwise([u], dict(zip(u.src, src)))
        return lowered
    return u if src == u.src else u.replace(src=src)


#: Ops that may hold small floats whatever they do.
_CONVERTED = frozenset({Op.CONST, Op.CAST, Op.BITCAST})
#: Ops that name the dtype of their value.
_NAMING = _CONVERTED | MEMORY_ROOTS | OPAQUE_INSTRUCTIONS


def _may_lower(u: UOp) -> bool:
    """Return True if a node of one of _CHANGED may be decomposed. A kernel without such nodes and small floats stays as it is."""
    return u.op is not Op.CAST or u.operand.dtype is not dt.index


def _lower_integer_mulacc(u: UOp) -> UOp:
    return UOp(Op.ADD, (UOp(Op.MUL, (u.lhs, u.rhs)), u.addend))


def _keep_wmma_on_floats_between_bitcasts(u: UOp) -> UOp:
    """Bitcast the operands of a Wmma back to small floats, which a tensor core takes as they are, and its result to bits."""
    dtypes = (u.arg.dtype_in, u.arg.dtype_in, u.arg.dtype_out)
    operands = (u.lhs, u.rhs, u.accumulator)
    src = [s if s.dtype is d else UOp(Op.BITCAST, (s,), BitcastArg(d)) for s, d in zip(operands, dtypes, strict=True)]
    product = u.replace(src=(*src, *u.src[len(src) :]))
    word = soften_dtype(u.arg.dtype_out)
    return product if word is u.arg.dtype_out else UOp(Op.BITCAST, (product,), BitcastArg(word))


def _lower_cast_of_index_to_small_float(u: UOp) -> UOp:
    """Lower a Cast of a loop counter to a small float, which stands in lists of instructions alone. Other dtypes keep theirs."""
    if u.dtype not in SMALL:
        return u
    counter = UOp(Op.CAST, (u.operand,), CastArg(dt.int64))
    (lowered,) = lower_elementwise([u.replace(src=(counter,))], {counter: counter})
    return lowered


def _is_not_float(u: UOp) -> bool:
    return not u.dtype.is_float


#: Ops that are lowered here rather than by `uops.compiler.decompose`: op -> (the nodes that are lowered, how).
_OWN: dict[Op, tuple[Callable[[UOp], bool], Callable[[UOp], UOp]]] = {
    Op.THREEFRY: (lambda u: True, decompose_threefry),
    Op.MULACC: (_is_not_float, _lower_integer_mulacc),
    Op.TRUNC: (_is_not_float, lambda u: u.operand),
    Op.CAST: (lambda u: u.operand.dtype is dt.index, _lower_cast_of_index_to_small_float),
    Op.WMMA: (lambda u: True, _keep_wmma_on_floats_between_bitcasts),
}
#: Ops of which some nodes are lowered.
_CHANGED = frozenset({*_OWN, *WIDE_RULES})
#: Ops of which some nodes are lowered or change their dtype.
_LOWERED = _CHANGED | _NAMING
