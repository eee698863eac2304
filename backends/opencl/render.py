"""The OpenCL renderer: a LINEAR kernel as one OpenCL C kernel.

Takes: LINEAR over SELECTED ops, and the `Language` of a device. Gives: OpenCL C 1.2 with float64. The first line is a comment that
describes the launch, so the text alone is enough. A buffer is passed as its memory object and an offset in bytes, and a variable
as a long.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from uops.backends.cstyle import atomic
from uops.backends.cstyle import render as family
from uops.backends.cstyle.language import MAX_LANES, Language, WorkgroupSyntax
from uops.backends.cstyle.launch import Extent, LaunchPlan, plan_launch
from uops.backends.cstyle.neighbours import first_of_run
from uops.backends.opencl.platforms import POCL, PlatformTraits, find_traits
from uops.compiler.decompose import WIDE
from uops.spec.ir import dtypes as dt
from uops.spec.ir.args import AddrSpace
from uops.spec.ir.dtypes import DType
from uops.spec.ir.node import UOp
from uops.spec.ir.ops import Op
from uops.spec.ir.scope import base_memory

ENTRY = "entry"
# fmt: off
#: The names of elements in types of vectors, such as `float4`.
_VECTOR_ELEMENT: dict[DType, str] = {
    dt.int8: "char",   dt.int16: "short",   dt.int32: "int",   dt.int64: "long",
    dt.uint8: "uchar", dt.uint16: "ushort", dt.uint32: "uint", dt.uint64: "ulong",
    dt.float32: "float", dt.float64: "double",
}
# fmt: on
#: The name of the component of each lane of a vector.
_COMPONENT = [f"s{k:x}" for k in range(16)]


def describe_language(
    traits: PlatformTraits, float32_by_float64: frozenset[Op] = frozenset(), max_lanes: int = MAX_LANES
) -> Language:
    """Return the language of a device of a platform.

    `float32_by_float64` has the ops that the device does not round correctly; a group has at most `max_lanes` work-items.
    """
    functions = {Op.MULACC: "fma", Op.SQRT: "sqrt"} | ({Op.TRUNC: "trunc"} if traits.has_exact_trunc else {})
    linear = traits.numbers_by_one_dimension
    return Language(
        name="opencl",
        bool_type="bool",
        pragmas=("#pragma OPENCL EXTENSION cl_khr_fp64 : enable", "#pragma OPENCL FP_CONTRACT OFF"),
        function_head="static inline",
        buffer="(m{0} + o{0})",
        scalar="n{}",
        functions={(op, d): name for op, name in functions.items() for d in WIDE},
        spaces={AddrSpace.GLOBAL: "__global ", AddrSpace.LOCAL: "__local "},
        workgroups=WorkgroupSyntax(
            group="(u32)get_group_id(0)" if linear else "get_group_id({})",
            lane="(u32)get_local_id(0)" if linear else "get_local_id({})",
            dimensions=1 if linear else 3,
            barrier="barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);",
            exchanges={4: "atomic_cmpxchg({}, {}, {})", 8: "atom_cmpxchg({}, {}, {})"},
            exchange_pragmas={8: "#pragma OPENCL EXTENSION cl_khr_int64_base_atomics : enable\n"},
            dynamic="(u32)n{}" if linear else "{}",
            max_lanes=min(max_lanes, MAX_LANES),
        ),
        least_private_bytes=traits.least_private_bytes,
        float32_by_float64=float32_by_float64,
        vector_lanes=traits.vector_lanes,
        non_affine_loop_hint=traits.non_affine_loop_hint,
    )


def fingerprint_device_dependent_parts(language: Language) -> str:
    """Return the differences between the languages of devices, as a text that is the same in every process."""
    syntax = language.workgroups
    functions = sorted(f"{op.name} {d}" for op, d in language.functions)
    by_float64 = sorted(op.name for op in language.float32_by_float64)
    limits = (
        language.least_private_bytes,
        language.vector_lanes,
        language.non_affine_loop_hint,
        *((syntax.dimensions, syntax.max_lanes) if syntax else ()),
    )
    return f"{functions} {by_float64} {limits}"


def is_linear(language: Language) -> bool:
    """Return True if all loops of a launch share one dimension."""
    return language.workgroups is not None and language.workgroups.is_linear


#: The language of PoCL's devices.
OPENCL = describe_language(find_traits(POCL))
OPS = family.OPS


class OpenClKernelRenderer(family.CKernelRenderer):
    """The rendering of one kernel as OpenCL C, whose loads and stores of neighbours may be those of a vector.

    A vector of memory is aligned as its elements are, so it may begin at any of them.
    """

    def __init__(self, linear: UOp, language: Language, plan: LaunchPlan) -> None:
        super().__init__(linear, language, plan.index_expressions, atomic.render_atomic_add_statement_by_compare_exchange)

    def render_load(self, u: UOp) -> None:
        """Render a read of neighbours as that of a vector, any other lane by lane."""
        count = self._vector_lanes_of_access_or_zero(u.buffer, u.dtype, u.gate)
        if not count or (u.gate is None) != (u.alternative is None):
            super().render_load(u)
            return
        vector, name = f"{_VECTOR_ELEMENT[u.dtype]}{count}", f"v{self.number}"
        load = f"vload{count}(0, {self._pointer(u.buffer, u.dtype)})"
        if u.gate is not None and u.alternative is not None:
            others = self._vector(vector, self.operand_text_by_lane(u.alternative), count)
            load = f"{self.scalar_operand(u.gate)} ? {load} : {others}"
        self.w.write_line(f"const {vector} {name} = {load};")
        self.values[u] = tuple(f"{name}.{c}" for c in _COMPONENT[:count])

    def render_store(self, u: UOp) -> None:
        """Render a write of neighbours as that of a vector, any other lane by lane."""
        d = u.value.dtype
        count = self._vector_lanes_of_access_or_zero(u.buffer, d, u.gate)
        if not count:
            super().render_store(u)
            return
        value = self._vector(f"{_VECTOR_ELEMENT[d]}{count}", self.operand_text_by_lane(u.value), count)
        gate = "" if u.gate is None else f"if ({self.scalar_operand(u.gate)}) "
        self.w.write_line(f"{gate}vstore{count}({value}, 0, {self._pointer(u.buffer, d)});")

    def _pointer(self, reference: UOp, d: DType) -> str:
        """Return the address of the first element of a reference, as that of an element of a vector."""
        at = self.require_computed_memory_ref(reference)
        return f"({self.language.space_qualifier(at.space)}{_VECTOR_ELEMENT[d]} *)&{at.element(0)}"

    @staticmethod
    def _vector(vector: str, lanes: Sequence[str], count: int) -> str:
        """Return a vector of operands."""
        return f"({vector})({', '.join(lanes[k % len(lanes)] for k in range(count))})"

    def _vector_lanes_of_access_or_zero(self, reference: UOp, d: DType, gate: UOp | None) -> int:
        """Return the lanes of an access to neighbours that a vector makes; 0 for any other."""
        at = self.require_computed_memory_ref(reference)
        if at.index is None or reference.op is not Op.INDEX or len(reference.positions) != 1 or d not in _VECTOR_ELEMENT:
            return 0
        count = len(at.index)
        if count not in self.language.vector_lanes or at.space is AddrSpace.REG or at.dtype is not d:
            return 0
        if first_of_run(reference.positions[0], count) is None or (gate is not None and gate.shape):
            return 0
        return count if at.base == self.memory_refs[base_memory(reference)].base else 0


def render(linear: UOp, language: Language = OPENCL) -> str:
    """Render a kernel. Raises Unsupported, CompileError (R60: barriers), and Crash for a malformed LINEAR kernel."""
    plan = plan_launch(linear.src, language)
    kernel = OpenClKernelRenderer(linear, language, plan)
    body = kernel.render_body()
    kinds = {u.arg.slot: "buffer" if u.arg.name is None else "scalar" for u in kernel.params()}
    slots = range(max(kinds, default=-1) + 1)
    arguments = [_ARGUMENT[kinds[k]].format(k) for k in slots if k in kinds]
    head = f"__kernel {_render_group_size_if_linear_and_constant(plan)}void {ENTRY}({', '.join(arguments)}) {{"
    comment = plan.launch_comment([kinds.get(k, "") for k in slots])
    return "\n".join((comment, *kernel.w.render_preamble(), head, *body, "}")) + "\n"


def _render_group_size_if_linear_and_constant(plan: LaunchPlan) -> str:
    """Return the attribute with the number of work-items of a group, if one dimension numbers them and it is known.

    Without it, a device may compile for groups that are smaller than the launch's.
    """
    if not plan.is_linear or not all(isinstance(n, int) for n in plan.lanes):
        return ""
    return f"__attribute__((reqd_work_group_size({max(1, _multiply(plan.lanes))}, 1, 1))) "


def _multiply(extents: Sequence[Extent]) -> int:
    return math.prod(n for n in extents if isinstance(n, int))


_ARGUMENT = {"buffer": "__global u8 *m{0}, i64 o{0}", "scalar": "i64 n{0}"}
