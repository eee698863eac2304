"""Cases of the rows that hold code outside of the language: text of a target, instructions by name, functions, programs.

A case is written in C; `translate_native_text` gives it in the language that a backend declares. `MEANINGS` has what each text
means to the interpreter. A Program has an empty Source and Binary, which the backend fills in (`uops.backends.testing.programs`).
Spec: Codegen/Custom, Ins, CustomFunction, Program, Source; CUSTOMI, PROGRAM_BINARY; R167 (native text), R168 (Ins and Custom on a
target), R169 (functions and programs).
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from uops.backends.conformance.cases.bestiary.kernels import BestiaryKernelBuilder, build_reversed_copy_as_sink_and_list
from uops.backends.conformance.cases.common import SAMPLE, Inputs, add_buffer, make_ordinary_then_random_data, make_single_cell_case
from uops.backends.conformance.cases.launches import (
    KernelBuilder,
    list_instructions,
    make_launch,
    make_launch_case,
    small_numbers,
)
from uops.backends.conformance.model import ConformanceCase, ConformanceTier
from uops.backends.contract import NATIVE_SURFACE
from uops.backends.testing.native_text import text_that_changes, text_that_stores
from uops.spec.bestiary import build as B
from uops.spec.ir import build as b
from uops.spec.ir import dtypes as dt
from uops.spec.ir.args import CustomArg, InsArg, NameArg, SourceArg
from uops.spec.ir.axes import AxisType
from uops.spec.ir.dtypes import DType
from uops.spec.ir.node import UOp, toposort
from uops.spec.ir.ops import Op

#: Extent of the loops.
N = 7
_TEXTS = {d: (text_that_changes(d), text_that_stores(d)) for d in dt.STORABLE}
#: (op, text in C) -> its meaning.
MEANINGS: dict[tuple[Op, str], Callable[..., Any]] = {
    (op, t.c): t.meaning for op in (Op.CUSTOM, Op.CUSTOMI) for texts in _TEXTS.values() for t in texts
}


def translate_native_text(case: ConformanceCase, language: str) -> ConformanceCase:
    """Return a case of native text in another language of `uops.backends.contract.LANGUAGES`, any other case as it is."""
    if case.surface != NATIVE_SURFACE or language != "llvm":  # the text is C, OpenCL C and CUDA C
        return case
    texts = {t.c: t.in_language(language) for t in _TEXTS[case.dtype]}
    done: dict[UOp, UOp] = {}
    for u in toposort(case.graph):
        src = tuple([done[s] for s in u.src])
        arg = replace(u.arg, fmt=texts[u.arg.fmt]) if u.op in (Op.CUSTOM, Op.CUSTOMI) else u.arg
        done[u] = u if src == u.src and arg is u.arg else u.replace(src=src, arg=arg)
    return replace(case, graph=done[case.graph], meaning=case.meaning or case.graph)


# ---------------------------------------------------------------------------------------------------------- texts, names


def _change_by_text(kind: AxisType) -> Callable[[DType, KernelBuilder], tuple[UOp, ...]]:
    def build(d: DType, k: KernelBuilder) -> tuple[UOp, ...]:
        source, target, i = k.add_source(d, N), k.add_target(d, N), k.make_range(N, kind)
        value = UOp(Op.CUSTOM, (b.load(b.at(source, i)),), CustomArg(text_that_changes(d).c, d))
        return (b.end(b.store(b.at(target, b.sub(N - 1, i)), value), i),)

    return build


def _store_by_text(d: DType, k: KernelBuilder) -> tuple[UOp, ...]:
    source, target, i = k.add_source(d, N), k.add_target(d, N), k.make_range(N)
    place, value = b.at(target, b.sub(N - 1, i)), b.load(b.at(source, i))
    return (b.end(UOp(Op.CUSTOM, (place, value), CustomArg(text_that_stores(d).c, dt.void)), i),)


def _change_by_bestiary_text(d: DType, k: BestiaryKernelBuilder) -> tuple[UOp, ...]:
    source, target, i = k.add_source(d, N), k.add_target(d, N), k.make_range(N)
    value = UOp(Op.CUSTOMI, (k.load_at(source, i),), CustomArg(text_that_changes(d).c, d))
    return (B.store(B.at(target, b.sub(N - 1, i)), value, i),)


#: Dtypes of the instructions, which count or move bits.
WORDS = (dt.uint32, dt.uint64)


def _call_instruction(mnemonic: str) -> Callable[[DType, KernelBuilder], tuple[UOp, ...]]:
    def build(d: DType, k: KernelBuilder) -> tuple[UOp, ...]:
        source, target, i = k.add_source(d, N), k.add_target(d, N), k.make_range(N)
        value = UOp(Op.INS, (b.load(b.at(source, i)),), InsArg(mnemonic, d))
        return (b.end(b.store(b.at(target, i), value), i),)

    return build


# -------------------------------------------------------------------------------------------------------------- functions


def _call_function(name: str, out: UOp, values: UOp) -> UOp:
    """Return memory after a CustomFunction has written it."""
    return b.after(out, b.call(UOp(Op.CUSTOM_FUNCTION, (), NameArg(name)), out, values, written=(0,)))


def _sort_by_function(d: DType, i: Inputs) -> UOp:
    i["b1"] = small_numbers(d, 9)
    out = add_buffer(d, 9, i, "sorted")
    return b.flip(_call_function("sort", out, b.buffer(9, d, unique=1)), (True,))


def _decode_by_function(d: DType, i: Inputs) -> UOp:
    data = make_ordinary_then_random_data(d, (9,), "encoded")
    stream = np.frombuffer(zlib.compress(data.tobytes()), np.uint8)
    i["p0"] = stream
    out = add_buffer(d, 9, i, "decoded")
    return _call_function("EncDec", out, b.param(0, stream.shape, dt.uint8))


# --------------------------------------------------------------------------------------------------------------- programs


def _launch_program_with_empty_binary(d: DType, inputs: Inputs) -> UOp:
    """Build a launch of a Program, whose list says what it computes."""
    k = KernelBuilder(inputs)
    source, target, i = k.add_source(d, N), k.add_target(d, N), k.make_range(N)
    load = b.load(b.at(source, i))
    to = b.at(target, UOp(Op.SUB, (b.const(N - 1, dt.int32), b.cast(i, dt.int32))))
    body = list_instructions(source, target, i, load, b.end(b.store(to, load), i))
    return make_launch(k.call_body(UOp(Op.PROGRAM, (body, UOp(Op.SOURCE, (), SourceArg("")), b.binary(b"")))))


def _launch_bestiary_program_with_empty_binary(d: DType, inputs: Inputs) -> UOp:
    k = BestiaryKernelBuilder(inputs)
    sink, instructions = build_reversed_copy_as_sink_and_list(d, k)
    stages = instructions, UOp(Op.SOURCE, (), SourceArg("")), UOp(Op.PROGRAM_BINARY, (), b.binary(b"").arg)
    return make_launch(k.call_body(B.program(sink, *stages)))


# fmt: off
#: (op, edge class, builder of effects) of each case whose kernel is a Sink.
KERNELS: tuple[tuple[Op, str, Callable[[DType, KernelBuilder], tuple[UOp, ...]]], ...] = (
    (Op.CUSTOM, "expression",     _change_by_text(AxisType.LOOP)),
    (Op.CUSTOM, "in-lanes",       _change_by_text(AxisType.UPCAST)),
    (Op.CUSTOM, "statement",      _store_by_text),
    (Op.INS,    "popcnt",         _call_instruction("popcnt")),
    (Op.INS,    "bswap",          _call_instruction("bswap")),
)
#: (op, edge class, builder of a launch) of each case of programs.
PROGRAMS: tuple[tuple[Op, str, Callable[[DType, Inputs], UOp]], ...] = (
    (Op.PROGRAM,        "compiled-before", _launch_program_with_empty_binary),
    (Op.SOURCE,         "compiled-before", _launch_program_with_empty_binary),
    (Op.PROGRAM_BINARY, "compiled-before", _launch_bestiary_program_with_empty_binary),
)
#: (op, edge class, builder of a graph) of each case of functions.
FUNCTIONS: tuple[tuple[Op, str, Callable[[DType, Inputs], UOp]], ...] = (
    (Op.CUSTOM_FUNCTION, "sort",   _sort_by_function),
    (Op.CUSTOM_FUNCTION, "decode", _decode_by_function),
)
# fmt: on


def generate_native_cases(tier: ConformanceTier) -> Iterator[ConformanceCase]:
    """Yield every row of native code x dtype."""
    dtypes = dt.STORABLE if tier is ConformanceTier.FULL else SAMPLE
    for op, edge, build in KERNELS:
        for d in WORDS if op is Op.INS else dtypes:
            k = KernelBuilder({})
            yield _on_native_surface(make_launch_case(op, d, edge, make_launch(k.call(*build(d, k))), k.inputs))
    for d in dtypes:
        own = BestiaryKernelBuilder({})
        launch = make_launch(own.call(*_change_by_bestiary_text(d, own)))
        yield _on_native_surface(make_launch_case(Op.CUSTOMI, d, "expression", launch, own.inputs))
    for op, edge, make in PROGRAMS:
        for d in dtypes:
            inputs: Inputs = {}
            yield _on_native_surface(make_launch_case(op, d, edge, make(d, inputs), inputs))
    for op, edge, make in FUNCTIONS:
        for d in dtypes:
            given: Inputs = {}
            yield make_single_cell_case(op, d, edge, make(d, given), given, surface=NATIVE_SURFACE)


def _on_native_surface(case: ConformanceCase) -> ConformanceCase:
    return replace(case, surface=NATIVE_SURFACE)
