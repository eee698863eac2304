"""The typed `arg` of each op: a frozen dataclass per form.

An op that is not in `ARG_TYPE` takes `arg=None`. Args are compared by field values. A Const's value is compared by its bits (R23).
"""

from __future__ import annotations

import struct
from enum import Enum

from uops.spec.ir.axes import AxisType
from uops.spec.ir.dtypes import DType
from uops.spec.ir.members import fast_enum
from uops.spec.ir.ops import Op
from uops.spec.ir.record import dataclass

#: A device name, or the n-tuple of names of a multi-device value.
Device = str | tuple[str, ...]


@fast_enum
class AddrSpace(Enum):
    """The memory that a buffer lives in."""

    GLOBAL = "global"
    LOCAL = "local"
    REG = "reg"

    def __repr__(self) -> str:
        return f"AddrSpace.{self.name}"


@dataclass(frozen=True, slots=True)
class ParamArg:
    """The arg of a Param.

    `slot` is the argument position in a Function, Call or kernel. A free named variable has slot None, a name and inclusive bounds
    (R48, symbolic sizes). `axis` is the sharded axis (R79).
    """

    slot: int | None
    dtype: DType
    device: Device | None = None
    addrspace: AddrSpace | None = None
    name: str | None = None
    bounds: tuple[int, int] | None = None
    axis: int | None = None


@dataclass(frozen=True, slots=True)
class BufferArg:
    """The arg of a Buffer: `size` is in elements per device, `unique` is the buffer's identity (R62)."""

    size: int
    dtype: DType
    device: Device
    addrspace: AddrSpace
    unique: int


@dataclass(frozen=True, slots=True, eq=False)
class ConstArg:
    """The arg of a Const: a bool, int or float that is representable in `dtype` (R23).

    Equality and hash are by bits: 0.0 differs from -0.0, and a NaN equals itself.
    """

    value: bool | int | float
    dtype: DType

    def _key(self) -> tuple[DType, type, object]:
        v = self.value
        return self.dtype, type(v), struct.pack("<d", v) if isinstance(v, float) else v

    def __eq__(self, other: object) -> bool:
        return isinstance(other, self.__class__) and self._key() == other._key()  # no globals: the interpreter may be finalizing

    def __hash__(self) -> int:
        value: int | None = self._hash  # type: ignore[attr-defined] # the slot that `record.dataclass` adds
        if value is None:
            value = hash(self._key())
            object.__setattr__(self, "_hash", value)
        return value


@dataclass(frozen=True, slots=True)
class BinaryArg:
    """The arg of Binary and PROGRAM_BINARY: raw bytes."""

    data: bytes


@dataclass(frozen=True, slots=True)
class PermuteArg:
    """The arg of a Permute: axis k of the result is axis order[k] of the operand."""

    order: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class FlipArg:
    """The arg of a Flip: a flag per axis, true where the axis is reversed."""

    flags: tuple[bool, ...]


@dataclass(frozen=True, slots=True)
class ReplicatedArg:
    """The arg of a Replicated: the axes along which the operand has equal copies."""

    axes: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class SliceArg:
    """The arg of a Slice: `size` elements of `dtype`."""

    size: int
    dtype: DType


@dataclass(frozen=True, slots=True)
class BitcastArg:
    """The arg of a Bitcast: the dtype of the result."""

    dtype: DType


@dataclass(frozen=True, slots=True)
class CastArg:
    """The arg of a Cast: the dtype of the result."""

    dtype: DType


@dataclass(frozen=True, slots=True)
class ReduceArg:
    """The arg of a Reduce: `op` is Add, Max or Mul (also Min in the bestiary); `axes` is empty if ranges are reduced (R42)."""

    op: Op
    axes: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class CallArg:
    """The annotations of a Call or Function; `written` lists the argument positions it may write, None means all (R63)."""

    name: str | None = None
    written: tuple[int, ...] | None = None
    grad_tag: str | None = None
    metadata: tuple[str, ...] = ()
    precompile: bool = False
    precompile_backward: bool = False


@dataclass(frozen=True, slots=True)
class GetTupleArg:
    """The arg of a GetTuple: the position of the element."""

    index: int


@dataclass(frozen=True, slots=True)
class LoadArg:
    """The destination of a Load; None means the default of R52 (the operand's device; REG in kernels, else GLOBAL)."""

    device: Device | None = None
    addrspace: AddrSpace | None = None


@dataclass(frozen=True, slots=True)
class RangeArg:
    """The arg of a Range: `axis_id` is its identity (R62); `renumbered` is the bestiary's mark of a range of a split kernel."""

    axis_id: int
    type: AxisType
    renumbered: bool = True


@dataclass(frozen=True, slots=True)
class SinkArg:
    """The arg of a Sink that is the root of a kernel: its name, and whether its loops are final.

    `scheduled` kernels are written by hand: they have the ops and loops of SCHEDULED in earlier dialects too, and no OptOp is
    applied to them (R166).
    """

    name: str
    scheduled: bool = False


@dataclass(frozen=True, slots=True)
class SpecialArg:
    """The arg of a Special: the name of a dimension of the launch (R125)."""

    name: str


@dataclass(frozen=True, slots=True)
class WmmaArg:
    """The arg of a Wmma, a tensor-core configuration.

    `dims` is (N, M, K). The axes are (axis id, factor) pairs, as in the bestiary's WmmaMetadata: `upcast_*` number the elements of
    each fragment, `reduce_axes` those of K. `tile_grid` is the number of products along N and along M (R178).
    """

    name: str
    dims: tuple[int, int, int]
    dtype_in: DType
    dtype_out: DType
    device: str
    threads: int
    upcast_a: tuple[tuple[int, int], ...] = ()
    upcast_b: tuple[tuple[int, int], ...] = ()
    upcast_c: tuple[tuple[int, int], ...] = ()
    reduce_axes: tuple[tuple[int, int], ...] = ()
    tile_grid: tuple[int, int] = (1, 1)


@dataclass(frozen=True, slots=True)
class CustomArg:
    """The arg of Custom and CUSTOMI: a code template and the dtype of its result (void for a statement)."""

    fmt: str
    dtype: DType


@dataclass(frozen=True, slots=True)
class InsArg:
    """The arg of an Ins: a mnemonic and the dtype of the result."""

    name: str
    dtype: DType


@dataclass(frozen=True, slots=True)
class NameArg:
    """The arg of a CustomFunction: its name."""

    name: str


@dataclass(frozen=True, slots=True)
class SourceArg:
    """The arg of a Source: the text of a rendered kernel, and the target that it and the Binary beside it are for.

    `target` is the name of a target and the key of its version and machine (R169); empty where nothing was compiled.
    """

    code: str
    target: str = ""


# The args of the bestiary's ops


@dataclass(frozen=True, slots=True)
class BBufferArg:
    """The arg of a BUFFER: its size in elements; identity and device are sources."""

    size: int
    dtype: DType


@dataclass(frozen=True, slots=True)
class BufferizeArg:
    """The arg of a BUFFERIZE, its BufferizeOpts: None and LOCAL for shared memory; inlining needs `removable`."""

    device: Device | None
    addrspace: AddrSpace
    removable: bool = True


@dataclass(frozen=True, slots=True)
class BIndexArg:
    """The arg of an INDEX: with `gated`, the last source is the gate."""

    gated: bool = False


@dataclass(frozen=True, slots=True)
class GepArg:
    """The arg of a GEP: the lanes to extract."""

    indices: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class VConstArg:
    """The arg of a VCONST: a constant per lane, in order."""

    values: tuple[ConstArg, ...]
    dtype: DType


@dataclass(frozen=True, slots=True)
class LanesArg:
    """The arg of UNROLL and CONTRACT: (axis id, factor) pairs, outermost lane axis first."""

    axes: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class BParamArg:
    """The arg of a PARAM: `size` elements of `dtype` in slot `slot`; the device is a source, if given."""

    slot: int
    size: int
    dtype: DType


@dataclass(frozen=True, slots=True)
class DefineArg:
    """The arg of DEFINE_LOCAL and DEFINE_REG: identity, size in elements and dtype."""

    id: int
    size: int
    dtype: DType


@dataclass(frozen=True, slots=True)
class DefineVarArg:
    """The arg of a DEFINE_VAR: a name and inclusive bounds."""

    name: str
    min_val: int
    max_val: int


@dataclass(frozen=True, slots=True)
class UniqueArg:
    """The arg of UNIQUE and LUNIQUE: the identity."""

    id: int


@dataclass(frozen=True, slots=True)
class DeviceArg:
    """The arg of a DEVICE: a device name or a tuple of names."""

    device: Device


@dataclass(frozen=True, slots=True)
class BPadArg:
    """The arg of a PAD: zeros before and after, per axis."""

    begin: tuple[int, ...]
    end: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class BShrinkArg:
    """The arg of a SHRINK: the half-open interval [begin, end) of each axis."""

    begins: tuple[int, ...]
    ends: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class BufferViewArg:
    """The arg of a BUFFER_VIEW: `size` elements from element `offset` on, in the buffer's dtype."""

    size: int
    offset: int


@dataclass(frozen=True, slots=True)
class MSelectArg:
    """The arg of an MSELECT: the number of the device."""

    index: int


@dataclass(frozen=True, slots=True)
class MultiArg:
    """The arg of a MULTI: the sharded axis."""

    axis: int


# fmt: off
#: Op -> the class of its arg; an op without an entry has none.
ARG_TYPE: dict[Op, type] = {
    Op.PARAM: ParamArg, Op.BUFFER: BufferArg, Op.CONST: ConstArg, Op.BINARY: BinaryArg,
    Op.PERMUTE: PermuteArg, Op.FLIP: FlipArg, Op.REPLICATED: ReplicatedArg, Op.SLICE: SliceArg, Op.BITCAST: BitcastArg,
    Op.REDUCE: ReduceArg, Op.FUNCTION: CallArg, Op.CALL: CallArg, Op.GETTUPLE: GetTupleArg, Op.LOAD: LoadArg,
    Op.RANGE: RangeArg, Op.SINK: SinkArg, Op.CAST: CastArg,
    Op.INS: InsArg, Op.SPECIAL: SpecialArg, Op.WMMA: WmmaArg, Op.CUSTOM: CustomArg, Op.CUSTOM_FUNCTION: NameArg,
    Op.SOURCE: SourceArg, Op.B_RANGE: RangeArg, Op.REDUCE_AXIS: ReduceArg, Op.B_REDUCE: ReduceArg, Op.ALLREDUCE: ReduceArg,
    Op.B_BUFFER: BBufferArg, Op.BUFFERIZE: BufferizeArg, Op.B_INDEX: BIndexArg, Op.PROGRAM_BINARY: BinaryArg,
    Op.GEP: GepArg, Op.VCONST: VConstArg, Op.UNROLL: LanesArg, Op.CONTRACT: LanesArg,
    Op.B_PARAM: BParamArg, Op.DEFINE_LOCAL: DefineArg, Op.DEFINE_VAR: DefineVarArg, Op.DEFINE_REG: DefineArg,
    Op.UNIQUE: UniqueArg, Op.LUNIQUE: UniqueArg, Op.DEVICE: DeviceArg, Op.B_PAD: BPadArg, Op.B_SHRINK: BShrinkArg,
    Op.BUFFER_VIEW: BufferViewArg, Op.MSELECT: MSelectArg, Op.MULTI: MultiArg, Op.CUSTOMI: CustomArg,
}
# fmt: on
#: Ops whose arg may also be None.
ARG_OPTIONAL = frozenset({Op.FUNCTION, Op.CALL, Op.SINK})

Arg = (
    None | ParamArg | BufferArg | ConstArg | BinaryArg | PermuteArg | FlipArg | ReplicatedArg | SliceArg | BitcastArg | CastArg
    | ReduceArg | CallArg | GetTupleArg | LoadArg | RangeArg | SinkArg | SpecialArg | WmmaArg | CustomArg | InsArg | NameArg
    | SourceArg | BBufferArg | BufferizeArg | BIndexArg | GepArg | VConstArg | LanesArg | BParamArg | DefineArg | DefineVarArg
    | UniqueArg | DeviceArg | BPadArg | BShrinkArg | BufferViewArg | MSelectArg | MultiArg
)  # fmt: skip
