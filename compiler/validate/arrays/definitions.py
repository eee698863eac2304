"""What each kernel of a launch must store, and whether it does.

Takes: the callified program that kernels were split from, their launch, and the Buffer of each value that is said to be realised.
Gives: for each kernel, a verdict on its values.

A kernel may read the values of earlier ones. So an element of memory is named by the memory and by the number of kernels that wrote
it before. If every kernel stores what it must, the launch computes the program. Which Buffer holds which value is a hint of
`rangeify`: with a wrong one, kernels are not equal. Nothing is refuted, since equal values have forms that the comparison tells
apart. Spec: R45 (Index), R51 (references), R63 (Call); Lowering Pipeline/Rangeify.
"""

from __future__ import annotations

import functools
import itertools
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from uops.compiler.ir.bodies import order_outside_kernels
from uops.compiler.log import LoweringLog
from uops.compiler.rewrite.gates import split_conjuncts
from uops.compiler.validate.arrays.elements import TRUE, ZERO, ElementExpressions, Index, flatten_index
from uops.compiler.validate.arrays.forms import (
    inline_private_memory,
    simplify_and_count_iterations,
    simplify_unrecorded,
)
from uops.compiler.validate.arrays.splits import is_body_with_split_reduces
from uops.compiler.validate.arrays.versions import require_consistent_reads
from uops.compiler.validate.fingerprints.compare import is_enumerated
from uops.compiler.validate.fingerprints.elements import count_elements_if_all_are_stored
from uops.compiler.validate.fingerprints.integers import NotEvaluable
from uops.compiler.validate.model import DecisionMethod, ObligationKind, ValidationVerdict
from uops.spec.ir import build as B
from uops.spec.ir import dtypes as dt
from uops.spec.ir.axes import AxisType
from uops.spec.ir.derive.shape import dim_node
from uops.spec.ir.dtypes import DType
from uops.spec.ir.node import UOp, rebuild, toposort
from uops.spec.ir.ops import MEMORY_ROOTS, WRITES, Op
from uops.spec.ir.scope import base_memory, is_variable

#: Memory as it is after a number of kernels that wrote it.
Version = tuple[UOp, int]
#: The check that covers a pass whose effect on values is not decided.
COVERED = "stages: every bit, unless floats are reduced (R32)"


def decide_values_of_split_kernels(
    callified: UOp, launch: UOp, log: LoweringLog, decide: Callable[[UOp, UOp], ValidationVerdict]
) -> Iterator[ValidationVerdict]:
    """Decide for each kernel of a launch that it stores values of the program. `decide` decides that two bodies store the same.

    Nothing is yielded for a launch of which no split is logged, as one that is written by hand.
    """
    split = next((m for m in log.transforms if m.pass_name == "realise"), None)
    if split is None:
        return
    definitions = KernelDefinitions(split.before, launch, _select_valid_hints(split.before, split.replacements))
    is_known = split.before.src[1:] == callified.src[1:] and (  # the arguments
        split.before.body is callified.body
        or any(
            is_body_with_split_reduces(callified.body, split.before.body, m.replacements)
            for m in log.transforms
            if m.pass_name == "parts" and m.before is callified.body
        )
    )
    fault = "the program changed before it was split" if not is_known else _find_fault_of_effects(definitions)
    for k in range(len(launch.src)):
        try:
            if fault is not None:
                raise NotEvaluable(fault)
            verdict = decide_pair(*definitions.pair_with_body(k), decide)
            if not verdict.is_proved:  # an Index out of range may have any value, and may be 0 in the kernel
                verdict = decide_pair(*definitions.pair_with_body(k, zero_out_of_range=True), decide)
            if not verdict.is_proved:
                raise NotEvaluable(verdict.why or "the terms differ")
            yield replace(verdict, place="rangeify")
        except NotEvaluable as e:
            yield leave_values_to_interpreter("rangeify", str(e))


def _find_fault_of_effects(definitions: KernelDefinitions) -> str | None:
    """Return why the effects of a program do not tell what its kernels store, or None."""
    if not definitions.has_kernel_per_effect:
        return "an effect of the program has no kernel, or is none that is known"
    try:
        require_consistent_reads(definitions.program.body.src)
    except NotEvaluable as e:
        return str(e)
    return None


def leave_values_to_interpreter(pass_name: str, reason: str) -> ValidationVerdict:
    """Return the verdict on a pass whose effect on values is not decided."""
    return ValidationVerdict(ObligationKind.VALUE, pass_name, DecisionMethod.INTERPRETER, why=f"{COVERED} ({reason})")


def _select_valid_hints(program: UOp, replacements: Mapping[UOp, UOp | tuple[UOp, ...]]) -> dict[UOp, UOp]:
    """Return the Buffer of each value: of each Buffer that is no memory of the program one value, which it can hold."""
    taken = {a.arg.unique for a in program.arguments if a.op is Op.BUFFER}
    hints: dict[UOp, UOp] = {}
    for u, buffer in replacements.items():
        if not isinstance(buffer, UOp) or buffer.op is not Op.BUFFER or buffer.arg.unique in taken or u.op is Op.STORE:
            continue
        if buffer.dtype is u.dtype or (u.dtype is dt.index and _holds_bounds(u, buffer.dtype)):
            taken.add(buffer.arg.unique)
            hints[u] = buffer
    return hints


def _holds_bounds(u: UOp, d: DType) -> bool:
    bounds = u.min_max
    return d.is_integer and bounds is not None and d.min <= bounds[0] and bounds[1] <= d.max


def decide_pair(definition: UOp, body: UOp, decide: Callable[[UOp, UOp], ValidationVerdict]) -> ValidationVerdict:
    """Decide that a body stores what its definition does: by `decide`, unless both are the same text."""
    if not (_reads_own_elements_alone(definition) and _reads_own_elements_alone(body)):
        raise NotEvaluable("a kernel reads elements that another of its iterations writes")
    if _normalize(definition) is _normalize(body):
        return ValidationVerdict(ObligationKind.VALUE, "rangeify", DecisionMethod.STRUCTURE)
    verdict = decide(definition, body)
    if verdict.is_proved and not is_enumerated(body) and not _store_same_elements(definition, body):
        raise NotEvaluable("the elements that it stores are not counted")
    return verdict


def _reads_own_elements_alone(body: UOp) -> bool:
    """Return True if each iteration of a body reads no element of memory that another one writes (R54: a Store reads first)."""
    nodes = toposort(body)
    stores = [u for u in nodes if u.op is Op.STORE and base_memory(u.buffer).op is Op.PARAM]
    written = {base_memory(u.buffer).arg.slot for u in stores}
    loads = [u for u in nodes if u.op is Op.LOAD and base_memory(u.buffer).op is Op.PARAM]
    own = [u for u in loads if base_memory(u.buffer).arg.slot in written]
    if not own:
        return True
    return (
        len(stores) == 1 and all(u.buffer is stores[0].buffer for u in own) and count_elements_if_all_are_stored(body) is not None
    )


def _store_same_elements(definition: UOp, body: UOp) -> bool:
    """Return True if two bodies, each with one Store, surely write the same elements: all of the first n of their memory."""
    counts = [count_elements_if_all_are_stored(b) for b in (definition, body)]
    return counts[0] is not None and counts[0] == counts[1]


def _normalize(body: UOp) -> UOp:
    """Return a body without its name, whose loops are numbered in the order of the nodes, and whose conjunctions are chains."""
    numbers = itertools.count()
    loops = {
        r: r.replace(arg=replace(r.arg, axis_id=next(numbers)))
        for r in toposort(*body.src)
        if r.op is Op.RANGE and r.bound.op is Op.CONST
    }

    def normalize(u: UOp) -> UOp:
        if u.op is Op.AND and u.dtype is dt.bool_ and u.rhs.op is Op.AND:
            return functools.reduce(lambda a, b: UOp(Op.AND, (a, b)), split_conjuncts(u))
        return loops.get(u, u)

    return rebuild(B.sink(*body.src), normalize)


class KernelDefinitions:
    """Definitions of the kernels of a launch: what each must store, by the callified program and its realised values."""

    def __init__(self, program: UOp, launch: UOp, buffer_of_value: Mapping[UOp, UOp]) -> None:
        self.program, self.calls = program, launch.src
        passed = {a for call in self.calls for a in call.arguments}
        self.buffer_of_value = {u: buffer for u, buffer in buffer_of_value.items() if buffer in passed}
        self.value_of_buffer = {buffer: u for u, buffer in self.buffer_of_value.items()}
        self.stores: dict[UOp, list[UOp]] = {}
        outside = order_outside_kernels(program.body)
        for u in outside:
            if u.op is Op.STORE and base_memory(u.buffer).op is Op.PARAM and 0 not in u.buffer.shape:
                self.stores.setdefault(self.argument_of(base_memory(u.buffer)), []).append(u)
        written_by_hand = {u.body for u in outside if u.op is Op.CALL}
        self.is_split = [call.op is Op.CALL and call.body not in written_by_hand for call in self.calls]
        #: Of each kernel, how often earlier ones wrote its arguments: all of them, and those that the program was split into.
        self.writes_before: list[dict[UOp, int]] = []
        self.stores_before: list[dict[UOp, int]] = []
        writes: Counter[UOp] = Counter()
        stores: Counter[UOp] = Counter()
        for call, is_split in zip(self.calls, self.is_split, strict=True):
            self.writes_before.append({a: writes[a] for a in call.arguments})
            self.stores_before.append({a: stores[a] for a in call.arguments})
            written = [call.arguments[slot] for slot in call.arg.written or ()] if call.op is Op.CALL else []
            writes.update(written)
            stores.update(written if is_split else ())
        by_hand = Counter(call.body for call, is_split in zip(self.calls, self.is_split, strict=True) if not is_split)
        self.has_kernel_per_effect = (
            all(stores[memory] == len(listed) for memory, listed in self.stores.items())
            and by_hand == Counter(u.body for u in outside if u.op is Op.CALL)
            and not any(u.op in WRITES and u.op is not Op.STORE for u in outside)
        )

    def argument_of(self, param: UOp) -> UOp:
        """Return the argument of the program that a Param of its body stands for."""
        argument: UOp = self.program.arguments[param.arg.slot]
        return argument

    def list_roots(self, k: int) -> list[UOp]:
        """Return the values and Stores that kernel `k` computes. Raises NotEvaluable if the program has no such Store."""
        call, roots = self.calls[k], []
        if not self.is_split[k]:
            raise NotEvaluable("a kernel that is written by hand")
        for memory in (call.arguments[slot] for slot in call.arg.written or ()):
            if memory in self.value_of_buffer:
                roots.append(self.value_of_buffer[memory])
                continue
            stores, earlier = self.stores.get(memory, []), self.stores_before[k][memory]
            if earlier >= len(stores):
                raise NotEvaluable("a kernel writes memory that the program does not write")
            roots.append(stores[earlier])
        return roots

    def pair_with_body(self, k: int, zero_out_of_range: bool = False) -> tuple[UOp, UOp]:
        """Return what kernel `k` must store as a body, and its own body, over the same Params. Raises NotEvaluable.

        An Index out of range has any value, or 0 with `zero_out_of_range`.
        """
        call, roots = self.calls[k], self.list_roots(k)
        if call.body.op is not Op.SINK:
            raise NotEvaluable("a kernel that is no body of loops")
        memories = {slot: a for slot, a in enumerate(call.arguments) if not is_variable(a)}
        if any(a.op not in MEMORY_ROOTS for a in memories.values()):
            raise NotEvaluable("an argument is a part of memory")
        counts = Counter(memories.values())
        slots = call.arg.written or ()
        if len(set(slots)) < len(slots) or any(counts[memories[slot]] > 1 for slot in slots):
            raise NotEvaluable("memory that is written is two arguments")
        versions = {slot: (a, self.writes_before[k][a]) for slot, a in memories.items()}
        for u in toposort(call.body):
            if u.op is Op.PARAM and not fits_argument(u, call.arguments):
                raise NotEvaluable("a Param of a kernel is of another kind than its argument")
        memory = KernelMemory(versions.values())
        params = {
            u: memory.add_param(u, versions[u.arg.slot]) for u in toposort(call.body) if u.op is Op.PARAM and not is_variable(u)
        }
        body = rebuild(call.body, lambda u: params.get(u, u))
        written = [versions[slot] for slot in call.arg.written or ()]
        effects = [
            self._define_effect(root, version, memory, zero_out_of_range) for root, version in zip(roots, written, strict=True)
        ]
        inlined = inline_private_memory(body)
        return simplify_and_count_iterations(B.sink(*effects)), body if inlined is body else simplify_unrecorded(inlined)

    def _count_first_stores(self, param: UOp, stores: frozenset[UOp]) -> int:
        """Return the number of Stores to a memory after which it is read. Raises NotEvaluable unless they are its first ones."""
        some = {u for u in stores if 0 not in u.buffer.shape}
        if some != set(self.stores.get(self.argument_of(param), [])[: len(some)]):
            raise NotEvaluable("memory is read after some of its Stores, and not after others before these")
        return len(some)

    def _define_effect(self, root: UOp, written: Version, memory: KernelMemory, zero_out_of_range: bool) -> UOp:
        """Return the effect that a kernel must have: to store a value, or what a Store stores, element by element."""

        def load(u: UOp, stores: frozenset[UOp], index: Index, gate: UOp) -> UOp | None:
            if u in self.buffer_of_value:
                return B.cast(memory.load((self.buffer_of_value[u], 1), flatten_index(index, u.shape), gate), u.dtype)
            if u.op is not Op.PARAM or is_variable(u):
                return None
            version = self.argument_of(u), self._count_first_stores(u, stores)
            return memory.load(version, flatten_index(index, u.shape), gate)

        expressions = ElementExpressions(load, root, zero_out_of_range)
        target = root.buffer if root.op is Op.STORE else root
        index = tuple(expressions.open_loop(n, AxisType.LOOP) for n in target.shape)
        gate = None
        if root.op is Op.STORE:
            stored = expressions.element_of_operand(root.value, index)
            gate = None if root.gate is None else expressions.element_of_operand(root.gate, index)
            position = expressions.position_in(target, index)
        else:
            stored, position = expressions.element(root, index), flatten_index(index, root.shape)
        address = memory.address(written, position)
        effect = B.store(address, B.cast(stored, address.dtype), gate)
        return B.wrap_in_one_end_per_loop(effect, [r for r in index if r is not ZERO])


def fits_argument(param: UOp, arguments: Sequence[UOp]) -> bool:
    """Return True if a Param of a body is the variable, or memory of the dtype, that a Call passes for it."""
    argument = arguments[param.arg.slot]
    if is_variable(param) or is_variable(argument):
        return is_variable(argument) and (argument.arg.name, argument.arg.bounds) == (param.arg.name, param.arg.bounds)
    return argument.dtype is param.dtype


class KernelMemory:
    """The Params of a kernel, one per version of memory that it is given. Memory that it is not given gets another one."""

    def __init__(self, versions: Iterable[Version]) -> None:
        self.slots: dict[Version, int] = {}
        for v in versions:
            self.slots.setdefault(v, len(self.slots))
        self.params: dict[Version, UOp] = {}

    def add_param(self, param: UOp, version: Version) -> UOp:
        """Return a Param of the kernel with the slot of what it is given."""
        return self.params.setdefault(version, param.replace(arg=replace(param.arg, slot=self.slots[version])))

    def address(self, version: Version, position: UOp) -> UOp:
        """Return the address of an element."""
        if version not in self.params:
            slot = self.slots.setdefault(version, len(self.slots))
            size = functools.reduce(B.mul, map(dim_node, version[0].shape), B.index(1))
            self.params[version] = B.param(slot, (size,), version[0].dtype)
        return UOp(Op.INDEX, (self.params[version], position))

    def load(self, version: Version, position: UOp, gate: UOp) -> UOp:
        """Return a Load of an element, of 0 where the gate is false."""
        address = self.address(version, position)
        return B.load(address) if gate is TRUE else B.load(address, B.const(0, address.dtype), gate)
