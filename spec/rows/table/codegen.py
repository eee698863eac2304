"""Codegen ops: primitives of generated code; none appears in a Tensor graph."""

from __future__ import annotations

import re

from uops.spec import wmma
from uops.spec.ir.args import WmmaArg
from uops.spec.ir.node import UOp
from uops.spec.ir.ops import Family, Op
from uops.spec.ir.scope import Context
from uops.spec.ir.sizes import show_shape
from uops.spec.rows.claims import (
    SAME_DEVICE,
    Draft,
    boolean,
    dtype_is,
    integer,
    named,
    numeric,
    reference,
    same_dtype,
    same_shape_as,
    scalar,
    source_ops,
)  # fmt: skip
from uops.spec.rows.table.base import EFFECT, NONE, Table


def _fragment_dtypes(u: UOp, ctx: Context) -> str | None:
    needed = (u.arg.dtype_in, u.arg.dtype_in, u.arg.dtype_out)
    wrong = next((k for k in range(3) if u.src[k].dtype is not needed[k]), None)
    return None if wrong is None else f"source {wrong} needs {needed[wrong]}, got {u.src[wrong].dtype}"


def _tile(u: UOp, ctx: Context) -> str | None:
    numbers = (*u.arg.dims, u.arg.threads, *u.arg.tile_grid)
    return None if all(n > 0 for n in numbers) else f"got dims {u.arg.dims}, {u.arg.threads} threads, grid {u.arg.tile_grid}"


def _fragment_sizes(u: UOp, ctx: Context) -> str | None:
    """The fragments of the instruction's descriptor (R118); of an instruction without one, the matrices divided by the lanes."""
    (n, m, k), threads = u.arg.dims, u.arg.threads
    if u.arg.tile_grid != (1, 1):
        return None
    known = wmma.find(u.arg)
    if known is None and (others := wmma.named(u.arg.name)):
        return f"{u.arg.name} is {' or '.join(map(_configuration, others))}, got {_configuration(u.arg)}"
    for at, (operand, elements) in enumerate(zip(wmma.OPERANDS, (m * k, k * n, m * n))):
        held = u.src[at].shape
        if known is not None and held != (known.map(operand).elements,):
            return f"source {at} needs the descriptor's {known.map(operand).elements} per lane, got {show_shape(held)}"
        if known is None and (elements % threads or held != (elements // threads,)):
            return f"source {at} needs {elements} elements over {threads} lanes, got {show_shape(held)} per lane"
    return None


def _configuration(d: WmmaArg | wmma.Descriptor) -> str:
    return f"dims {d.dims} of {d.dtype_in} to {d.dtype_out} over {d.threads} lanes"


def custom_template(u: UOp, ctx: Context) -> str | None:
    """Placeholders are {0}, {1}, ...; doubled braces are literal."""
    text = u.arg.fmt.replace("{{", "").replace("}}", "")
    found = re.findall(r"\{([^{}]*)\}", text)
    if re.sub(r"\{[^{}]*\}", "", text).count("{") or re.sub(r"\{[^{}]*\}", "", text).count("}"):
        return "unmatched brace"
    wrong = [f for f in found if not (f.isascii() and f.isdigit() and len(f) < 6 and int(f) < len(u.src))]
    return f"{{{wrong[0]}}} with {len(u.src)} sources" if wrong else None


def _stages(u: UOp, ctx: Context) -> str | None:
    needed = (Op.LINEAR, Op.SOURCE, Op.BINARY)
    wrong = next((k for k in range(3) if u.src[k].op is not needed[k]), None)
    return None if wrong is None else f"source {wrong} needs {needed[wrong].name.lower()}, got {u.src[wrong].op.name.lower()}"


r = Table(Family.CODEGEN)
# fmt: off
r(Op.BARRIER, "Barrier", None, "deps...", "No lane of the workgroup goes on until all have come here.", gradient=EFFECT)
r(Op.INS, "Ins", None, "args...", "One machine instruction, by its mnemonic.", [named("name")], gradient=EFFECT)
r(Op.SPECIAL, "Special", "SPECIAL", "bound", "The index of this lane or workgroup in a dimension of the launch.", [
    scalar("bound", 0, "R77"),
    dtype_is("bound", integer, "is an integer", "R77", 0),
    named("name"),
], gradient=NONE)
r(Op.IF, "If", None, "gate", "From here to its Endif, only if the gate is true.", [
    dtype_is("gate", boolean, "is bool", "", 0),
    scalar("gate", 0),
], gradient=EFFECT)
r(Op.ENDIF, "Endif", "ENDIF", "if", "Ends the block of an If.", [
    source_ops("if", 0, frozenset({Op.IF, Op.B_IF})),
], gradient=EFFECT)
r(Op.WMMA, "Wmma", "WMMA", "A B acc", "The lanes of a warp together compute A times B plus acc, each holding fragments.", [
    Draft("A and B are dtype_in, acc is dtype_out", _fragment_dtypes, "R93"),
    Draft("dims, threads and grid are positive", _tile, "R93", gate=True),
    Draft("the fragments are the descriptor's, or hold M*K, K*N and M*N elements", _fragment_sizes, "R118"),
    SAME_DEVICE,
])
r(Op.CUSTOM, "Custom", "Custom", "args...", "A line of target code with {k} for source k.", [
    Draft("each placeholder names a source", custom_template),
], gradient=EFFECT)
r(Op.ATOMICADD, "AtomicAdd", None, "idx val", "Adds val to memory, as if at once; the order of several is free.", [
    reference("idx", 0),
    same_dtype("idx and val"),
    same_shape_as("idx and val", 0, 1),
    dtype_is("idx", numeric, "is not bool", "R56", 0),
    SAME_DEVICE,
], gradient=EFFECT)
r(Op.CUSTOM_FUNCTION, "CustomFunction", "CustomFunction", "meta...",
  "A function of the device, by name; the body of a Call.", [named("name")], gradient=EFFECT)
r(Op.PROGRAM, "Program", None, "linear source binary", "One kernel as instructions, as text and as machine code.", [
    Draft("sources are Linear, Source, Binary", _stages),
], gradient=EFFECT)
r(Op.SOURCE, "Source", "SOURCE", "", "The text of a rendered kernel.", gradient=EFFECT)
# fmt: on
ROWS = tuple(r.rows)
