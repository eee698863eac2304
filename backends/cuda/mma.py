"""Tensor cores in CUDA C: a Wmma as `mma.sync`, and what the shim computes in its place.

A Wmma is a call of a function that the kernel's text defines: pointers to the results, then the registers of A, B and C. nvrtc
sees one instruction in it. The shim sees C: the lanes of a warp exchange A and B through arrays, as they do in
`uops.compiler.passes.wmma`, and each sums its own elements in double, or as integers that wrap.

Spec: Wmma; R118 (Wmma's fragments), R119 (Wmma's value). PTX ISA: 9.7.14 (warp level matrix multiply-accumulate instructions).
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from uops.spec.ir import dtypes as dt
from uops.spec.ir.args import WmmaArg
from uops.spec.ir.dtypes import DType
from uops.spec.wmma import DESCRIPTORS, AffineLaneMap, Descriptor, MapDigit, find_descriptor

#: Bytes of a register that holds several elements.
_REGISTER = 4
#: Register type and constraint of operands with an element per register.
_SINGLE = {dt.float32: ("f32", "f"), dt.float64: ("f64", "d"), dt.int32: ("i32", "r")}
_PREFIX = "mma.sync."


def is_mma(arg: WmmaArg) -> bool:
    """Return True if a configuration names an instruction `mma.sync` with a descriptor."""
    return arg.name.startswith(_PREFIX) and find_descriptor(arg) is not None


def has_instruction(arg: WmmaArg, architecture: str) -> bool:
    """Return True if an architecture such as `sm_90` has the instruction of a configuration."""
    return find_descriptor(arg) in _present(architecture)


def _present(architecture: str) -> list[Descriptor]:
    """Return the descriptors of the instructions `mma.sync` that an architecture has."""
    number = architecture_number(architecture)
    return [d for d in DESCRIPTORS if d.name.startswith(_PREFIX) and architecture_number(d.arch) <= number]


def choose_largest_accurate_tensor_cores(architecture: str) -> tuple[WmmaArg, ...]:
    """Return the instructions that schedules for an architecture may use: the largest of each pair of dtypes.

    A schedule must stay within the error of any sum (R32, value of a Reduce). sm_90 sums 16 products of 16-bit floats with 25
    fraction bits, which is within it. Older ones keep 24 bits of 8 products, and fp8 has 13 bits on some: neither is.
    """
    exact = {dt.int8, dt.float64}
    wide = {dt.float16, dt.bfloat16} if architecture_number(architecture) >= 90 else set[DType]()
    usable = [d for d in _present(architecture) if d.dtype_in in exact | wide and d.dtype_out in _SINGLE]
    largest_first = sorted(usable, key=lambda d: -d.dims[0] * d.dims[1] * d.dims[2])
    args = [WmmaArg(d.name, d.dims, d.dtype_in, d.dtype_out, "GPU", d.threads) for d in largest_first]
    return tuple({(a.dtype_in, a.dtype_out): a for a in reversed(args)}.values())


def architecture_number(architecture: str) -> int:
    """Return the number of an architecture: 90 for `sm_90`."""
    return int(re.sub(r"\D", "", architecture) or 0)


def packed_per_register(d: DType) -> int:
    """Return the elements of a dtype that share a register."""
    return 1 if d in _SINGLE else _REGISTER // d.itemsize


def pack_registers(elements: Sequence[str], d: DType) -> list[str]:
    """Return the expressions of the registers that hold elements.

    Each is an element itself, or several packed, the first in its low bits.
    """
    n = packed_per_register(d)
    if n == 1:
        return list(elements)
    word = "u16" if d.itemsize == 2 else "u8"
    parts = [[f"(u32)({word}){x} << {8 * d.itemsize * k}" if k else f"(u32)({word}){x}" for k, x in enumerate(elements[i : i + n])]
             for i in range(0, len(elements), n)]  # fmt: skip
    return [" | ".join(p) for p in parts]


def unpack_element(result: str, k: int, d: DType) -> str:
    """Return the expression of element `k` of a result."""
    n = packed_per_register(d)
    if n == 1:
        return f"{result}[{k}]"
    return f"(u16)({result}[{k // n}] >> {8 * d.itemsize * (k % n)})"


def result_type(d: DType) -> str:
    """Return the type of a result's registers."""
    return _SINGLE[d][0] if d in _SINGLE else "u32"


def count_result_registers(d: Descriptor) -> int:
    """Return the number of registers of a lane's part of D."""
    return d.c.elements // packed_per_register(d.dtype_out)


def function_name(d: Descriptor) -> str:
    """Return the name of the function of a descriptor."""
    return "mma_" + re.sub(r"\W", "_", d.name.removeprefix(_PREFIX + "aligned."))


def render_function(d: Descriptor) -> str:
    """Return the definition of a descriptor's function."""
    in_type, in_constraint = _SINGLE.get(d.dtype_in, ("u32", "r"))
    out_type, out_constraint = _SINGLE.get(d.dtype_out, ("u32", "r"))
    a, b = (m.elements // packed_per_register(d.dtype_in) for m in (d.a, d.b))
    c = count_result_registers(d)
    names = [*(f"a{k}" for k in range(a)), *(f"b{k}" for k in range(b)), *(f"c{k}" for k in range(c))]
    types = [in_type] * (a + b) + [out_type] * c
    head = f"static __device__ inline void {function_name(d)}({out_type} *d, {', '.join(map(' '.join, zip(types, names)))})"
    numbers = iter(range(c + a + b + c))
    lists = ["{" + ", ".join(f"%{next(numbers)}" for _ in range(n)) + "}" for n in (c, a, b, c)]
    outputs = ", ".join(f'"={out_constraint}"(d[{k}])' for k in range(c))
    constraints = [in_constraint] * (a + b) + [out_constraint] * c
    inputs = ", ".join(f'"{k}"({n})' for k, n in zip(constraints, names))
    return "\n".join((
        head + " {", "#ifdef __CUDACC__", f'  asm("{d.name} {", ".join(lists)};" : {outputs} : {inputs});', "#else",
        *_render_mma_emulation_for_shim(d), "#endif", "}", "",
    ))  # fmt: skip


# ------------------------------------------------------------------------------------------------------------------ the shim


def _render_mma_emulation_for_shim(d: Descriptor) -> list[str]:
    """Return C statements: this lane's elements of A and B to the warp's matrices, and the sums of its elements of C."""
    n, m, k = d.dims
    wide = "double" if d.dtype_out.is_float else "unsigned"
    lines = [
        f"  static {wide} left[(UOPS_LANES + 31) / 32][{m * k}], right[(UOPS_LANES + 31) / 32][{k * n}];",
        "  unsigned lane = threadIdx.x % 32, warp = threadIdx.x / 32;",
    ]
    for name, matrix, lane_map, columns in (("a", "left", d.a, k), ("b", "right", d.b, n)):
        for e in range(lane_map.elements):
            at = f"{_place(lane_map, e, 1)} * {columns} + {_place(lane_map, e, 2)}"
            lines.append(
                f"  {matrix}[warp][{at}] = {_widen_to_double_or_unsigned(_element_of_registers(name, e, d.dtype_in), d.dtype_in)};"
            )
    lines += ["  uops_wait();", f"  {wide} sums[{d.c.elements}];"]
    for e in range(d.c.elements):
        lines.append(f"  sums[{e}] = {_widen_to_double_or_unsigned(_element_of_registers('c', e, d.dtype_out), d.dtype_out)};")
        product = f"left[warp][({_place(d.c, e, 1)}) * {k} + k], right[warp][k * {n} + {_place(d.c, e, 2)}]"
        x, y = product.split(", ")
        step = f"fma({x}, {y}, sums[{e}])" if wide == "double" else f"sums[{e}] + {x} * {y}"
        lines.append(f"  for (int k = 0; k < {k}; k++) sums[{e}] = {step};")
    lines.append("  uops_wait();")
    per = packed_per_register(d.dtype_out)
    for r in range(count_result_registers(d)):
        parts = [_narrow(f"sums[{r * per + j}]", d.dtype_out) for j in range(per)]
        lines.append(f"  d[{r}] = {parts[0] if per == 1 else f'{parts[0]} | {parts[1]} << 16'};")
    return lines


def _place(lane_map: object, element: int, axis: int) -> str:
    """Return the row (axis 1) or column (axis 2) of this lane's element."""
    assert isinstance(lane_map, AffineLaneMap)
    terms, weight = [str(lane_map.place(0, element)[axis - 1])], 1
    for digit in lane_map.lane:
        step = MapDigit(*digit)[axis]
        if step:
            terms.append(f"lane / {weight} % {digit.size} * {step}")
        weight *= digit.size
    return "(" + " + ".join(terms) + ")"


def _element_of_registers(name: str, element: int, d: DType) -> str:
    n = packed_per_register(d)
    register = f"{name}{element // n}"
    return register if n == 1 else f"({register} >> {8 * d.itemsize * (element % n)})"


def _widen_to_double_or_unsigned(x: str, d: DType) -> str:
    """Return an element as a double, or as an unsigned integer that holds it modulo 2^32."""
    if d in _SINGLE:
        return f"(unsigned){x}" if d is dt.int32 else x
    if d is dt.int8:
        return f"(unsigned)(int)(signed char){x}"
    mask = (1 << d.bits) - 1
    return f"uops_widen({x} & {mask}, {d.exp_bits}, {d.man_bits}, {int(d.finite_only)})"


def _narrow(x: str, d: DType) -> str:
    return f"(int){x}" if d is dt.int32 else x if d is dt.float64 else f"(float){x}" if d is dt.float32 else f"uops_narrow_f16({x})"


#: C of the shim: a small float by its fields as a double, and a double rounded to float16 (R15, Cast: to nearest, ties to even).
SHIM_FUNCTIONS = """
static double uops_from_bits(unsigned long x) { union { unsigned long u; double d; } b; b.u = x; return b.d; }
static double uops_widen(unsigned x, int exponent_bits, int fraction_bits, int finite_only) {
  unsigned long sign = (unsigned long)(x >> (exponent_bits + fraction_bits)) << 63;
  int top = (1 << exponent_bits) - 1, bias = top >> 1, e = x >> fraction_bits & top;
  unsigned long m = x & ((1u << fraction_bits) - 1);
  if (e == top && (!finite_only || m + 1 == 1ul << fraction_bits))
    return uops_from_bits(sign | 0x7FFul << 52 | (finite_only || m ? 1ul << 51 : 0));
  double one = uops_from_bits((unsigned long)((e ? e : 1) - bias - fraction_bits + 1023) << 52);
  double magnitude = (double)(long)(e ? m | 1ul << fraction_bits : m) * one;
  return sign ? -magnitude : magnitude;
}
static unsigned uops_narrow_f16(double x) {
  union { unsigned long u; double d; } b; b.d = x;
  unsigned sign = b.u >> 63 << 15;
  if (x != x) return sign | 0x7E00;
  b.u &= ~0ul >> 1;
  int e = (int)(b.u >> 52) - 1023;
  if (e < -14) e = -14;
  if (e > 15) return sign | 0x7C00;
  double steps = b.d * uops_from_bits((unsigned long)(1023 + 10 - e) << 52);
  double rounded = (steps + 4503599627370496.0) - 4503599627370496.0;
  unsigned long count = (unsigned long)(long)rounded;
  return sign | (unsigned)(count + ((unsigned long)(e + 14) << 10));
}
"""
