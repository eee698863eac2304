"""Evaluation of elementwise graphs over arrays, compiled with llvmlite: fast enough for every float32.

This is a second, independent lowering to judge the decompositions: one scalar LLVM instruction or intrinsic per node in a loop,
which LLVM vectorizes. Only float32, float64, bool and machine integers occur. A Cast from float to integer must be in range.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from typing import Any

import llvmlite.binding as llvm
import llvmlite.ir as ir
import numpy as np

from uops.spec.ir import dtypes as dt
from uops.spec.ir.dtypes import DType, DTypeKind
from uops.spec.ir.node import UOp, toposort
from uops.spec.ir.ops import Op

llvm.initialize_native_target()
llvm.initialize_native_asmprinter()

F32, F64 = ir.FloatType(), ir.DoubleType()
NUMPY = {d: np.dtype(d.name) for d in (*dt.INTS, dt.float32, dt.float64)} | {dt.bool_: np.dtype(np.bool_)}


def _type(d: DType) -> Any:
    """Return the LLVM type of a dtype in registers."""
    if d is dt.bool_:
        return ir.IntType(1)
    return {dt.float32: F32, dt.float64: F64}.get(d) or ir.IntType(d.bits)


def _intrinsic(b: Any, name: str, *args: Any) -> Any:
    """Emit a call of an intrinsic whose operands have one type."""
    return b.call(b.module.declare_intrinsic(name, [args[0].type], ir.FunctionType(args[0].type, [a.type for a in args])), args)


def _make_compare_emitter(predicate: str, unordered: bool = False) -> Callable[[Any, UOp, list[Any]], Any]:
    """Return a function that emits a comparison; of floats, unordered if NaN makes it true."""

    def emit_compare(b: Any, u: UOp, s: list[Any]) -> Any:
        d = u.lhs.dtype
        if d.is_float:
            return (b.fcmp_unordered if unordered else b.fcmp_ordered)(predicate, *s)
        return (b.icmp_signed if d.kind is DTypeKind.INT else b.icmp_unsigned)(predicate, *s)

    return emit_compare


def _make_arith_emitter(on_float: str, on_int: str) -> Callable[[Any, UOp, list[Any]], Any]:
    """Return a function that emits one of two instructions, by the dtype's kind."""
    return lambda b, u, s: getattr(b, on_float if u.dtype.is_float else on_int)(*s)


def _emit_shift(b: Any, u: UOp, s: list[Any]) -> Any:
    """Emit a shift, arithmetic to the right for signed integers."""
    if u.op is Op.SHL:
        return b.shl(*s)
    return (b.ashr if u.dtype.kind is DTypeKind.INT else b.lshr)(*s)


def _emit_cast(b: Any, u: UOp, s: list[Any]) -> Any:
    """Emit a Cast."""
    a, d, t = u.operand.dtype, u.dtype, _type(u.dtype)
    if a is d:
        return s[0]
    if a.is_float and d.is_float:
        return (b.fpext if a.bits < d.bits else b.fptrunc)(s[0], t)
    if a.is_float:
        return (b.fptosi if d.kind is DTypeKind.INT else b.fptoui)(s[0], t)
    if d.is_float:
        return (b.sitofp if a.kind is DTypeKind.INT else b.uitofp)(s[0], t)
    if a.bits > d.bits:
        return b.trunc(s[0], t)
    if a is not dt.bool_ and a.bits == d.bits:
        return s[0]
    return (b.sext if a.kind is DTypeKind.INT else b.zext)(s[0], t)


def _emit_max(b: Any, u: UOp, s: list[Any]) -> Any:
    """Emit a maximum, NaN if an operand is."""
    if u.dtype.is_float:
        return _intrinsic(b, "llvm.maximum", *s)
    return b.select((b.icmp_signed if u.dtype.kind is DTypeKind.INT else b.icmp_unsigned)("<", *s), s[1], s[0])


# fmt: off
EMIT: dict[Op, Callable[[Any, UOp, list[Any]], Any]] = {
    Op.ADD: _make_arith_emitter("fadd", "add"), Op.SUB: _make_arith_emitter("fsub", "sub"),
    Op.MUL: _make_arith_emitter("fmul", "mul"), Op.NEG: _make_arith_emitter("fneg", "neg"),
    Op.DIV: lambda b, u, s: b.fdiv(*s),
    Op.RECIP: lambda b, u, s: b.fdiv(ir.Constant(s[0].type, 1.0), s[0]),
    Op.MULACC: lambda b, u, s: b.fma(*s) if u.dtype.is_float else b.add(b.mul(s[0], s[1]), s[2]),
    Op.SQRT: lambda b, u, s: _intrinsic(b, "llvm.sqrt", *s), Op.TRUNC: lambda b, u, s: _intrinsic(b, "llvm.trunc", *s),
    Op.MAX: _emit_max, Op.CAST: _emit_cast, Op.BITCAST: lambda b, u, s: b.bitcast(s[0], _type(u.dtype)),
    Op.CMPLT: _make_compare_emitter("<"), Op.CMPNE: _make_compare_emitter("!=", unordered=True),
    Op.CMPEQ: _make_compare_emitter("=="), Op.CMPGT: _make_compare_emitter(">"),
    Op.AND: lambda b, u, s: b.and_(*s), Op.OR: lambda b, u, s: b.or_(*s), Op.XOR: lambda b, u, s: b.xor(*s),
    Op.NOT: lambda b, u, s: b.not_(s[0]), Op.SHL: _emit_shift, Op.SHR: _emit_shift, Op.WHERE: lambda b, u, s: b.select(*s),
}
# fmt: on


def _memory_type(d: DType) -> Any:
    """Return the LLVM type of a dtype in memory."""
    return ir.IntType(8) if d is dt.bool_ else _type(d)


def _build_loop_function(module: Any, roots: Sequence[UOp], leaves: Sequence[UOp]) -> None:
    """Add a function `run` that evaluates `roots` for each element of the arrays of `leaves`."""
    pointers = [_memory_type(u.dtype).as_pointer() for u in (*leaves, *roots)]
    f = ir.Function(module, ir.FunctionType(ir.VoidType(), [*pointers, ir.IntType(64)]), "run")
    for a in f.args[: len(pointers)]:
        a.add_attribute("noalias")
    entry, loop, done = (f.append_basic_block(n) for n in ("entry", "loop", "done"))
    b = ir.IRBuilder(entry)
    b.branch(loop)
    b.position_at_end(loop)
    i = b.phi(ir.IntType(64))
    i.add_incoming(ir.Constant(ir.IntType(64), 0), entry)
    value: dict[UOp, Any] = {}
    for leaf, p in zip(leaves, f.args, strict=False):
        v = b.load(b.gep(p, [i]))
        value[leaf] = b.trunc(v, ir.IntType(1)) if leaf.dtype is dt.bool_ else v
    for u in toposort(*roots, gate=lambda n: n not in value):
        if u in value:
            continue
        if u.op is Op.CONST:
            value[u] = ir.Constant(_type(u.dtype), u.const)
        elif u.op is not Op.STACK:
            value[u] = EMIT[u.op](b, u, [value[s] for s in u.src])
    for root, p in zip(roots, f.args[len(leaves) :], strict=False):
        v = value[root]
        b.store(b.zext(v, ir.IntType(8)) if root.dtype is dt.bool_ else v, b.gep(p, [i]))
    after = b.add(i, ir.Constant(ir.IntType(64), 1))
    i.add_incoming(after, loop)
    b.cbranch(b.icmp_unsigned("<", after, f.args[-1]), loop, done)
    ir.IRBuilder(done).ret_void()


class ElementwiseKernel:
    """The compiled `roots` as a function of `leaves` (nodes of shape ()), called with one array per leaf."""

    def __init__(self, roots: UOp | Sequence[UOp], leaves: Sequence[UOp]) -> None:
        self.roots = [roots] if isinstance(roots, UOp) else list(roots)
        module = ir.Module()
        _build_loop_function(module, self.roots, leaves)
        target = llvm.Target.from_default_triple().create_target_machine(
            opt=3, cpu=llvm.get_host_cpu_name(), features=llvm.get_host_cpu_features().flatten()
        )
        self._module = llvm.parse_assembly(str(module))
        options = llvm.create_pipeline_tuning_options(speed_level=3)
        options.loop_vectorization = True
        builder = llvm.create_pass_builder(target, options)
        builder.getModulePassManager().run(self._module, builder)
        self.assembly = target.emit_assembly(self._module)
        self._engine = llvm.create_mcjit_compiler(self._module, target)
        self._engine.finalize_object()
        count = len(leaves) + len(self.roots)
        kind = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * count, ctypes.c_int64)
        self._run = kind(self._engine.get_function_address("run"))
        self._leaves = list(leaves)

    def __call__(self, *arrays: Any) -> Any:
        """Return one array, or a tuple of them for several roots."""
        operands = [np.ascontiguousarray(a, NUMPY[u.dtype]) for a, u in zip(arrays, self._leaves, strict=True)]
        out = [np.empty(operands[0].shape, NUMPY[r.dtype]) for r in self.roots]
        if operands[0].size:
            self._run(*(a.ctypes.data for a in (*operands, *out)), operands[0].size)
        return out[0] if len(out) == 1 else tuple(out)
