"""Metamorphic relations: programs whose outputs follow from those of another program.

A relation draws another sample from a sample, with a map from its outputs back to those of the first. The mapped outputs are
judged by the first sample's allowed sets. Other passes apply to the related program: one kernel becomes two, an output becomes
an intermediate value, memory has other numbers.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from uops.backends.answer import memory_key
from uops.backends.conformance.stage_judge import Outputs
from uops.compiler import pipeline  # noqa: F401 - loads the modules that hold rules
from uops.compiler.ir.buffers import highest_unique
from uops.compiler.rewrite.matchers import get_or_make_matcher_table
from uops.compiler.rewrite.rule import Rule
from uops.compiler.rewrite.rules import INDEXING, SELECTED_VALUES
from uops.fuzz.generate.draw import SeededDraw, draw_permutation
from uops.fuzz.generate.kinds import ProgramSample
from uops.fuzz.oracles.batch import trace_output_axis_to_input_axes
from uops.fuzz.reduce.shrinks import list_values
from uops.spec.ir import build as b
from uops.spec.ir import dtypes as dt
from uops.spec.ir.node import UOp, toposort
from uops.spec.ir.ops import CALL_LIKE, Op
from uops.spec.ir.record import dataclass
from uops.spec.ir.scope import is_variable, root_items, scope_nodes


class RelatedSample(NamedTuple):
    """A related sample, and the map from its outputs to those of the first sample."""

    sample: ProgramSample
    map_outputs_back: Callable[[Outputs], Outputs]


@dataclass(frozen=True, slots=True)
class MetamorphicRelation:
    """A relation between samples. `make` returns None for a sample that it does not apply to."""

    name: str
    description: str
    make: Callable[[ProgramSample, SeededDraw], RelatedSample | None]


def _static_nonscalar_shape_of_single_output(s: ProgramSample) -> tuple[int, ...] | None:
    """Return the shape of the root if it is one value with at least one axis and static extents, else None."""
    u = s.graph
    if u.dtype is dt.void or isinstance(u.device, tuple):
        return None
    shape = tuple(u.shape)
    return tuple(int(n) for n in shape) if shape and all(isinstance(n, int) for n in shape) else None


def _map_root_output(map_back: Callable[[Any], Any]) -> Callable[[Outputs], Outputs]:
    """Map output 0 back, and keep the Buffers."""
    return lambda outputs: {**outputs, 0: np.ascontiguousarray(map_back(outputs[0]))} if 0 in outputs else outputs


def _permute_output(s: ProgramSample, draw: SeededDraw) -> RelatedSample | None:
    shape = _static_nonscalar_shape_of_single_output(s)
    if shape is None or len(shape) < 2:
        return None
    order = draw_permutation(draw, len(shape))
    inverse = [order.index(k) for k in range(len(order))]
    return RelatedSample(s._replace(graph=b.permute(s.graph, order)), _map_root_output(lambda a: a.transpose(inverse)))


def _permute_inputs_along_traced_output_axis(s: ProgramSample, draw: SeededDraw) -> RelatedSample | None:
    """Permute all inputs along an axis that can be traced through the program; the program stays the same."""
    values = s.graph.src if s.graph.op is Op.TUPLE else (s.graph,)
    shape = tuple(values[0].shape)
    if any(tuple(u.shape) != shape or isinstance(u.device, tuple) for u in values):
        return None
    axes = [axis for axis, n in enumerate(shape) if isinstance(n, int) and n > 1]
    traced = [(axis, input_axes) for axis in axes if (input_axes := trace_output_axis_to_input_axes(values, axis))]
    if not traced:
        return None
    axis, input_axes = draw.choice(traced)
    order = draw_permutation(draw, int(shape[axis]))
    inverse = [order.index(k) for k in range(len(order))]
    inputs = dict(s.inputs)
    for u, input_axis in input_axes.items():
        key = memory_key(u)
        if key in inputs:
            inputs[key] = np.take(np.asarray(inputs[key]), order, input_axis)
    return RelatedSample(
        s._replace(inputs=inputs),
        lambda outputs: {k: v.take(inverse, axis) if isinstance(k, int) else v for k, v in outputs.items()},
    )


def _flip_output(s: ProgramSample, draw: SeededDraw) -> RelatedSample | None:
    shape = _static_nonscalar_shape_of_single_output(s)
    if shape is None:
        return None
    axes = [draw.chance(60) for _ in shape]
    slices = tuple(slice(None, None, -1) if is_flipped else slice(None) for is_flipped in axes)
    return RelatedSample(s._replace(graph=b.flip(s.graph, axes)), _map_root_output(lambda a: a[slices]))


def _pad_output(s: ProgramSample, draw: SeededDraw) -> RelatedSample | None:
    shape = _static_nonscalar_shape_of_single_output(s)
    if shape is None:
        return None
    before, after = ([draw.integer(0, 3) for _ in shape] for _ in range(2))
    outer = [lo + n + hi for lo, n, hi in zip(before, shape, after, strict=True)]
    slices = tuple(slice(lo, lo + n) for lo, n in zip(before, shape, strict=True))
    return RelatedSample(s._replace(graph=b.pad(s.graph, before, outer)), _map_root_output(lambda a: a[slices]))


def _split_output(s: ProgramSample, draw: SeededDraw) -> RelatedSample | None:
    """Split the output into two parts, which the map concatenates."""
    shape = _static_nonscalar_shape_of_single_output(s)
    axes = [k for k, n in enumerate(shape or ()) if n > 1]
    if shape is None or not axes:
        return None
    axis = draw.choice(axes)
    middle = draw.integer(1, shape[axis] - 1)
    parts = []
    for lo, hi in ((0, middle), (middle, shape[axis])):
        offset, size = [0] * len(shape), list(shape)
        offset[axis], size[axis] = lo, hi - lo
        parts.append(b.shrink(s.graph, offset, size))

    def join_parts(outputs: Outputs) -> Outputs:
        buffers: Outputs = {k: v for k, v in outputs.items() if not isinstance(k, int)}
        return {**buffers, 0: np.concatenate([outputs[0], outputs[1]], axis)} if {0, 1} <= outputs.keys() else buffers

    return RelatedSample(s._replace(graph=b.tuple_(*parts)), join_parts)


def _renumber_memory_and_variables(s: ProgramSample, draw: SeededDraw) -> RelatedSample | None:
    """Give memory other numbers and variables other names."""
    shift = draw.integer(1, 50)
    replacements: dict[UOp, UOp] = {}
    keys: dict[str, str] = {}
    for u in _nodes_outside_bodies(s.graph):
        if u.op is Op.BUFFER:
            replacements[u] = u.replace(arg=replace(u.arg, unique=u.arg.unique + shift))
            keys[f"b{u.arg.unique}"] = f"b{u.arg.unique + shift}"
        elif u.op is Op.PARAM and u.arg.name is not None:
            replacements[u] = u.replace(arg=replace(u.arg, name=f"{u.arg.name}x{shift}"))
            keys[u.arg.name] = f"{u.arg.name}x{shift}"
        elif u.op is Op.PARAM:
            replacements[u] = u.replace(arg=replace(u.arg, slot=u.arg.slot + shift))
            keys[f"p{u.arg.slot}"] = f"p{u.arg.slot + shift}"
    graph = _replace_outside_bodies(s.graph, replacements)
    old_keys = {new: old for old, new in keys.items()}
    inputs = {keys.get(k, k): v for k, v in s.inputs.items()}
    return RelatedSample(
        s._replace(graph=graph, inputs=inputs), lambda outputs: {old_keys.get(str(k), k): v for k, v in outputs.items()}
    )


def _enclose_in_call(s: ProgramSample, draw: SeededDraw) -> RelatedSample | None:
    """Make the program the body of a Call, which stores its values; memory is passed to it in a drawn order."""
    nodes = _nodes_outside_bodies(s.graph)
    memory = [u for u in nodes if u.op is Op.BUFFER or (u.op is Op.PARAM and u.arg.name is None)]
    items = root_items(s.graph)
    values = [u for u in items if u.dtype is not dt.void]
    is_storable = all(u.dtype is not dt.index for u in values) and all(map(_is_static_on_one_device, nodes))
    if not memory or s.graph.op in CALL_LIKE or not is_storable:
        return None
    first = _free_unique(s.graph)
    outputs = [b.buffer(math.prod(v.shape), v.dtype, v.device or "CPU", unique=first + k) for k, v in enumerate(values)]
    arguments = [(*memory, *outputs)[k] for k in draw_permutation(draw, len(memory) + len(outputs))]
    params = {u: b.param(k, u.shape, u.dtype, u.device) for k, u in enumerate(arguments)}
    targets = iter(outputs)  # one per value, of which two may be the same node
    body = b.sink(*(u if u.dtype is dt.void else b.store(b.reshape(params[next(targets)], u.shape), u) for u in items))
    call = b.call(_replace_outside_bodies(body, {u: params[u] for u in memory}), *arguments)
    places = {f"b{o.arg.unique}": (k, v.shape) for k, (o, v) in enumerate(zip(outputs, values, strict=True))}

    def rename_output_memory_and_restore_shapes(outputs: Outputs) -> Outputs:
        read: Outputs = {}
        for key, array in outputs.items():
            k, shape = places.get(str(key), (key, array.shape))
            read[k] = array.reshape(shape)
        return read

    return RelatedSample(s._replace(graph=call), rename_output_memory_and_restore_shapes)


def _is_static_on_one_device(u: UOp) -> bool:
    """Return True for a node on one device, of a constant shape, that is no variable."""
    is_static = u.dtype is dt.void or all(isinstance(n, int) for n in u.shape)
    return is_static and not isinstance(u.device, tuple) and not is_variable(u)


def _nodes_outside_bodies(root: UOp) -> list[UOp]:
    """List the nodes outside of bodies, which number their Params themselves (R64: bodies own their Params)."""
    return scope_nodes(root)


def _replace_outside_bodies(root: UOp, replacements: dict[UOp, UOp]) -> UOp:
    """Replace nodes outside of bodies."""
    done: dict[UOp, UOp] = {}
    for u in _nodes_outside_bodies(root):
        new = replacements.get(u, u)
        if new.src != u.src:
            done[u] = new
        elif u.op in CALL_LIKE:
            done[u] = new.replace(src=(new.body, *(done[x] for x in new.arguments)))
        else:
            done[u] = new.replace(src=tuple(done[x] for x in new.src))
    return done[root]


# -------------------------------------------------------------------------------------------------- inside of the program


def _insert_identity(s: ProgramSample, draw: SeededDraw) -> RelatedSample | None:
    """Insert an identity between a value and its users."""
    values = _list_values_to_insert_identity_after(s.graph)
    if not values:
        return None
    u = draw.choice(values)
    forms = [f for f in IDENTITIES if f is not _store_and_read or draw.chance(50)]
    new = draw.choice(forms)(u, draw, s.graph)
    return None if new is None else RelatedSample(s._replace(graph=_replace_in_all_users(s.graph, u, new)), lambda found: found)


def list_arguments_call_may_write(call: UOp) -> list[UOp]:
    """Return the arguments that a Call may write: all, unless it declares them (R63)."""
    arguments: tuple[UOp, ...] = call.arguments
    declared = None if call.arg is None else call.arg.written
    return list(arguments) if declared is None else [arguments[k] for k in declared]


def _list_values_to_insert_identity_after(root: UOp) -> list[UOp]:
    """List the values outside of bodies that have a static shape on one device and are no views of written memory."""
    written = {x for u in toposort(root) if u.op is Op.STORE for x in toposort(u.buffer)}
    written.update(x for u in scope_nodes(root) if u.op is Op.CALL for x in toposort(*list_arguments_call_may_write(u)))
    outside = set(_nodes_outside_bodies(root))
    return [
        u
        for u in list_values(root)
        if u in outside and u not in written and u.op is not Op.AFTER and u.op not in (Op.TUPLE, Op.FUNCTION)
        and all(isinstance(n, int) for n in u.shape) and not isinstance(u.device, tuple)
    ]  # fmt: skip


def _replace_in_all_users(root: UOp, old: UOp, new: UOp) -> UOp:
    """Replace `old` by `new`, which is computed from `old`, in all its users."""
    if root is old:
        return new
    done: dict[UOp, UOp] = {}
    for x in toposort(root):
        src = tuple(new if y is old else done[y] for y in x.src)
        done[x] = x if src == x.src else x.replace(src=src)
    return done[root]


def _make_contiguous(u: UOp, draw: SeededDraw, root: UOp) -> UOp:
    return b.contiguous(u)


def _flip_twice(u: UOp, draw: SeededDraw, root: UOp) -> UOp:
    axes = [draw.chance(60) for _ in u.shape]
    return b.flip(b.flip(u, axes), axes)


def _reshape_twice(u: UOp, draw: SeededDraw, root: UOp) -> UOp:
    return b.reshape(b.reshape(u, (int(np.prod(u.shape)), 1)), u.shape)


def _pad_and_shrink(u: UOp, draw: SeededDraw, root: UOp) -> UOp:
    before = [draw.integer(0, 2) for _ in u.shape]
    outer = [lo + n + draw.integer(0, 2) for lo, n in zip(before, u.shape, strict=True)]
    return b.shrink(b.pad(u, before, outer), before, u.shape)


def _expand_and_index(u: UOp, draw: SeededDraw, root: UOp) -> UOp:
    n = draw.integer(2, 3)
    wide = b.expand(b.reshape(u, (1, *u.shape)), (n, *u.shape))
    return UOp(Op.INDEX, (wide, b.index(draw.integer(0, n - 1))))


def _load_value(u: UOp, draw: SeededDraw, root: UOp) -> UOp:
    return b.load(u)


def _unstack_and_stack(u: UOp, draw: SeededDraw, root: UOp) -> UOp | None:
    """Index every element of the leading axis, and stack them again."""
    if not u.shape or u.shape[0] < 2 or u.shape[0] > 8:
        return None
    return b.stack(*(UOp(Op.INDEX, (u, b.index(k))) for k in range(u.shape[0])))


def _store_and_read(u: UOp, draw: SeededDraw, root: UOp) -> UOp | None:
    """Store the value in a new Buffer and read it."""
    size = int(np.prod(u.shape))
    buffer = b.buffer(size, u.dtype, u.device if isinstance(u.device, str) else "CPU", unique=_free_unique(root))
    return b.reshape(b.after(buffer, b.store(b.reshape(buffer, u.shape), u)), u.shape)


def _free_unique(root: UOp) -> int:
    return highest_unique(toposort(root)) + 1


#: Functions that build a value equal to a given one; None where one does not apply.
IDENTITIES: tuple[Callable[[UOp, SeededDraw, UOp], UOp | None], ...] = (
    _make_contiguous, _flip_twice, _reshape_twice, _pad_and_shrink, _expand_and_index, _load_value, _unstack_and_stack,
    _store_and_read,
)  # fmt: skip

#: All relations. Draws depend on the order.
RELATIONS: tuple[MetamorphicRelation, ...] = (
    MetamorphicRelation("permuted", "a permuted output is permuted", _permute_output),
    MetamorphicRelation(
        "batched",
        "inputs permuted along an axis that goes through the program permute the output",
        _permute_inputs_along_traced_output_axis,
    ),
    MetamorphicRelation("flipped", "a flipped output is flipped", _flip_output),
    MetamorphicRelation("padded", "a padded output has the output inside", _pad_output),
    MetamorphicRelation("split", "two parts of an output, joined, are the output", _split_output),
    MetamorphicRelation("renamed", "numbers of memory and names of variables mean nothing", _renumber_memory_and_variables),
    MetamorphicRelation("enclosed", "the body of a Call does what the program does", _enclose_in_call),
    MetamorphicRelation("inserted", "an identity between a value and its users changes nothing", _insert_identity),
)


def draw_related_sample(s: ProgramSample, draw: SeededDraw) -> tuple[MetamorphicRelation, RelatedSample] | None:
    """Draw a relation that applies to the sample, and a related sample; return None if there is none."""
    relations = list(RELATIONS)
    while relations:
        relation = relations.pop(draw.integer(0, len(relations) - 1))
        related = relation.make(s, draw)
        if related is not None:
            return relation, related
    return None


# ------------------------------------------------------------------------------------------------------------ one rule off


@contextmanager
def run_without_index_or_selection_rule(rule: Rule) -> Iterator[None]:
    """Run the compiler without one of its rewrite rules inside the context.

    Wherever a module of the compiler holds the list of rules, it holds a shorter one. Of the compiled matchers only that of
    the rule's own op is made anew.
    """
    shorter = {id(rules): _drop_rule_and_keep_other_ops_matchers(rules, rule) for rules in (INDEXING, SELECTED_VALUES)}
    changed = [(m, name, v) for m in _compiler_modules() for name, v in vars(m).items() if v is INDEXING or v is SELECTED_VALUES]
    try:
        for m, name, rules in changed:
            setattr(m, name, shorter[id(rules)])
        yield
    finally:
        for m, name, rules in changed:
            setattr(m, name, rules)


def _drop_rule_and_keep_other_ops_matchers(rules: tuple[Rule, ...], rule: Rule) -> tuple[Rule, ...]:
    """Return the rules without one; they share the compiled matchers of all ops but its own."""
    others = tuple(r for r in rules if r is not rule)
    get_or_make_matcher_table(others).update(
        (op, step) for op, step in get_or_make_matcher_table(rules).items() if op is not rule.lhs.op
    )
    return others


def _compiler_modules() -> list[Any]:
    return [m for name, m in list(sys.modules.items()) if name.startswith("uops.compiler.") and m is not None]
