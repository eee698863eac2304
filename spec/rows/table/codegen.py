"""Codegen ops: primitives of generated code; none appears in a Tensor graph."""

from __future__ import annotations

import math
import re

from uops.spec import wmma
from uops.spec.ir.args import WmmaArg
from uops.spec.ir.axes import SEQUENTIAL
from uops.spec.ir.node import UOp
from uops.spec.ir.ops import Family, Op
from uops.spec.ir.scope import VerifyContext, open_ranges, scope_nodes
from uops.spec.ir.sizes import show_shape
from uops.spec.rows.claims import (
    SAME_DEVICE,
    ClaimDraft,
    claim_sources_share_dtype,
    distinct_ranges_claim,
    dtype_claim,
    is_boolean,
    is_integer,
    is_numeric,
    nonempty_field_claim,
    reference_claim,
    same_shape_claim,
    scalar_claim,
    source_op_claim,
)  # fmt: skip
from uops.spec.rows.table.base import RowTable


def _check_fragment_dtypes(u: UOp, ctx: VerifyContext) -> str | None:
    needed = (u.arg.dtype_in, u.arg.dtype_in, u.arg.dtype_out)
    for k, (s, d) in enumerate(zip(u.src, needed)):
        if s.dtype is not d:
            return f"source {k} needs {d}, got {s.dtype}"
    return None


def _check_tile(u: UOp, ctx: VerifyContext) -> str | None:
    numbers = (*u.arg.dims, u.arg.threads, *u.arg.tile_grid)
    return None if all(n > 0 for n in numbers) else f"got dims {u.arg.dims}, {u.arg.threads} threads, grid {u.arg.tile_grid}"


def _check_fragments_match_descriptor_or_even_share(u: UOp, ctx: VerifyContext) -> str | None:
    """Check that the fragments are those of the instruction's descriptor (R118, Wmma's fragments).

    Without a descriptor of this name, the lanes share the elements of each matrix evenly.
    """
    (n, m, k), threads = u.arg.dims, u.arg.threads
    grid_n, grid_m = u.arg.tile_grid
    descriptor = wmma.find_descriptor(u.arg)
    if descriptor is None and (others := wmma.descriptors_named(u.arg.name)):
        return f"{u.arg.name} is {' or '.join(map(_describe_configuration, others))}, got {_describe_configuration(u.arg)}"
    matrices = zip(wmma.OPERANDS, (m * k, k * n, m * n), (grid_m, grid_n, grid_m * grid_n))
    for position, (s, (matrix, elements, tiles)) in enumerate(zip(u.src, matrices)):
        grid = "" if tiles == 1 else f" for each of {tiles} tiles"
        if descriptor is not None and s.shape != (descriptor.map(matrix).elements * tiles,):
            held = descriptor.map(matrix).elements
            return f"source {position} needs the descriptor's {held} per lane{grid}, got {show_shape(s.shape)}"
        if descriptor is None and (elements % threads or s.shape != (elements // threads * tiles,)):
            return f"source {position} needs {elements} elements over {threads} lanes{grid}, got {show_shape(s.shape)} per lane"
    return None


def _check_loops_in_order(u: UOp, ctx: VerifyContext) -> str | None:
    unordered = next((r for r in u.ranges if r.op is Op.B_RANGE and r.arg.type not in SEQUENTIAL), None)
    return None if unordered is None else f"axis {unordered.arg.axis_id} is {unordered.arg.type.name}"


def _check_accumulator_outside_loops(u: UOp, ctx: VerifyContext) -> str | None:
    inside = open_ranges(scope_nodes(u.accumulator))[u.accumulator].intersection(u.ranges) if u.ranges else None
    return f"it depends on axis {min(r.arg.axis_id for r in inside)}" if inside else None


def _check_upcast_axes_number_fragment_elements(u: UOp, ctx: VerifyContext) -> str | None:
    for position, (s, axes) in enumerate(zip(u.src, (u.arg.upcast_a, u.arg.upcast_b, u.arg.upcast_c))):
        elements = math.prod(factor for _, factor in axes)
        if axes and s.shape != (elements,):
            return f"source {position} has {show_shape(s.shape)}, its axes {elements} elements"
    return None


def _check_reduce_axes(u: UOp, ctx: VerifyContext) -> str | None:
    (_, _, k), axes = u.arg.dims, u.arg.reduce_axes
    elements = math.prod(factor for _, factor in axes)
    return None if not axes or elements == k else f"K is {k}, the axes have {elements}"


def _describe_configuration(d: WmmaArg | wmma.Descriptor) -> str:
    return f"dims {d.dims} of {d.dtype_in} to {d.dtype_out} over {d.threads} lanes"


#: What a template has braces for, from left to right: a literal brace, doubled, or a placeholder; else a brace is unmatched.
_BRACES = re.compile(r"\{\{|\}\}|\{([^{}]*)\}|[{}]")


def check_template_placeholders_name_sources(u: UOp, ctx: VerifyContext) -> str | None:
    """Check that each placeholder {0}, {1}, ... of a code template names a source; doubled braces are literal."""
    for brace in _BRACES.finditer(u.arg.fmt):
        number = brace[1]
        if number is None and len(brace[0]) == 1:
            return "unmatched brace"
        if number is not None and not (number.isascii() and number.isdigit() and len(number) < 6 and int(number) < len(u.src)):
            return f"{brace[0]} with {len(u.src)} sources"
    return None


def _check_sources_are_linear_source_binary(u: UOp, ctx: VerifyContext) -> str | None:
    for k, (s, op) in enumerate(zip(u.src, (Op.LINEAR, Op.SOURCE, Op.BINARY))):
        if s.op is not op:
            return f"source {k} needs {op.name.lower()}, got {s.op.name.lower()}"
    return None


r = RowTable(Family.CODEGEN)
# fmt: off
r(Op.BARRIER, "Barrier", None, "deps...", "No lane of the workgroup goes on until all have come here.")
r(Op.INS, "Ins", None, "args...", "One machine instruction, by its mnemonic.", [nonempty_field_claim("name")])
r(Op.SPECIAL, "Special", "SPECIAL", "bound", "The index of this lane or workgroup in a dimension of the launch.", [
    scalar_claim("bound", 0, "R77"),
    dtype_claim("bound", is_integer, "is an integer", "R77", 0),
    nonempty_field_claim("name"),
])
r(Op.IF, "If", None, "gate", "From here to its Endif, only if the gate is true.", [
    dtype_claim("gate", is_boolean, "is bool", "", 0),
    scalar_claim("gate", 0),
])
r(Op.ENDIF, "Endif", "ENDIF", "if", "Ends the block of an If.", [
    source_op_claim("if", 0, frozenset({Op.IF, Op.B_IF})),
])
r(Op.WMMA, "Wmma", "WMMA", "A B acc range...",
  "The lanes of a warp together compute A times B, added up over the ranges, plus acc, each holding fragments.", [
    ClaimDraft("A and B are dtype_in, acc is dtype_out", _check_fragment_dtypes, "R93"),
    ClaimDraft("dims, threads and grid are positive", _check_tile, "R93", gate=True),
    ClaimDraft("the fragments are the descriptor's, or hold M*K, K*N and M*N elements",
               _check_fragments_match_descriptor_or_even_share, "R118"),
    SAME_DEVICE,
    distinct_ranges_claim(3, frozenset({Op.B_RANGE})),
    ClaimDraft("the ranges iterate in order: they are LOOP or REDUCE", _check_loops_in_order, "R178"),
    ClaimDraft("acc stands outside of the ranges", _check_accumulator_outside_loops, "R178"),
    ClaimDraft(
        "upcast axes number the elements of the fragment, where there are any",
        _check_upcast_axes_number_fragment_elements, "R178",
    ),
    ClaimDraft("reduce axes number K, where there are any", _check_reduce_axes, "R178"),
])
r(Op.CUSTOM, "Custom", "Custom", "args...", "A line of target code with {k} for source k.", [
    ClaimDraft("each placeholder names a source", check_template_placeholders_name_sources),
])
r(Op.ATOMICADD, "AtomicAdd", None, "idx val", "Adds val to memory, as if at once; the order of several is free.", [
    reference_claim("idx", 0),
    claim_sources_share_dtype("idx and val"),
    same_shape_claim("idx and val", 0, 1),
    dtype_claim("idx", is_numeric, "is not bool", "R56", 0),
    SAME_DEVICE,
])
r(Op.CUSTOM_FUNCTION, "CustomFunction", "CustomFunction", "meta...",
  "A function of the device, by name; the body of a Call.", [nonempty_field_claim("name")])
r(Op.PROGRAM, "Program", None, "linear source binary", "One kernel as instructions, as text and as machine code.", [
    ClaimDraft("sources are Linear, Source, Binary", _check_sources_are_linear_source_binary),
])
r(Op.SOURCE, "Source", "SOURCE", "", "The text of a rendered kernel.")
# fmt: on
ROWS = tuple(r.rows)
