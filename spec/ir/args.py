"""The typed `arg` of each op: one frozen dataclass per form, never a bare tuple (STYLE 4).

An op that is not in `ARG_TYPE` takes `arg=None`. Identity is by field value, except that a Const's value is compared by its bits
(R23).
"""

from __future__ import annotations

import struct
from enum import Enum

from uops.spec.ir.axes import AxisType
from uops.spec.ir.dtypes import DType
from uops.spec.ir.members import quick
from uops.spec.ir.ops import Op
from uops.spec.ir.record import dataclass

#: A device name, or the n-tuple of names of a multi-device value.
Device = str | tuple[str, ...]


@quick
class AddrSpace(Enum):
    """Where a buffer lives."""

    GLOBAL = "global"
    LOCAL = "local"
    REG = "reg"

    def __repr__(self) -> str:
        return f"AddrSpace.{self.name}"


@dataclass(frozen=True, slots=True)
class ParamArg:
    """`slot` is the position in a Function, Call or kernel; a free named variable has slot None, a name and bounds (R48)."""

    slot: int | None
    dtype: DType
    device: Device | None = None
    addrspace: AddrSpace | None = None
    name: str | None = None
    bounds: tuple[int, int] | None = None
    axis: int | None = None


@dataclass(frozen=True, slots=True)
class BufferArg:
    """`size` is in elements, per device; `unique` is the buffer's identity (R62)."""

    size: int
    dtype: DType
    device: Device
    addrspace: AddrSpace
    unique: int


@dataclass(frozen=True, slots=True, eq=False)
class ConstArg:
    """A bool, int or float representable in `dtype` (R23). Equality and hash are by bits: 0.0 is not -0.0, a NaN equals itself."""

    value: bool | int | float
    dtype: DType

    def _key(self) -> tuple[DType, type, object]:
        v = self.value
        return self.dtype, type(v), struct.pack("<d", v) if isinstance(v, float) else v

    def __eq__(self, other: object) -> bool:
        return isinstance(other, self.__class__) and self._key() == other._key()  # no global name, as Python may be ending

    def __hash__(self) -> int:
        found: int | None = self._hash  # type: ignore[attr-defined] # the place that a record has for it
        if found is None:
            found = hash(self._key())
            object.__setattr__(self, "_hash", found)
        return found


@dataclass(frozen=True, slots=True)
class BinaryArg:
    """Raw bytes of Binary and PROGRAM_BINARY."""

    data: bytes


@dataclass(frozen=True, slots=True)
class PermuteArg:
    """Axis k of the result is axis order[k] of the source."""

    order: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class FlipArg:
    flags: tuple[bool, ...]


@dataclass(frozen=True, slots=True)
class ReplicatedArg:
    axes: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class SliceArg:
    """`size` elements of `dtype`."""

    size: int
    dtype: DType


@dataclass(frozen=True, slots=True)
class BitcastArg:
    dtype: DType


@dataclass(frozen=True, slots=True)
class CastArg:
    dtype: DType


@dataclass(frozen=True, slots=True)
class ReduceArg:
    """`op` is Add, Max or Mul (Min in the bestiary forms); `axes` is empty when ranges are reduced (R42)."""

    op: Op
    axes: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class CallArg:
    """Annotations of a Call or Function; `written` lists the argument positions it writes, None means any (R63)."""

    name: str | None = None
    written: tuple[int, ...] | None = None
    grad_tag: str | None = None
    metadata: tuple[str, ...] = ()
    precompile: bool = False
    precompile_backward: bool = False


@dataclass(frozen=True, slots=True)
class GetTupleArg:
    index: int


@dataclass(frozen=True, slots=True)
class LoadArg:
    """Destination of a Load; None means the default of R52."""

    device: Device | None = None
    addrspace: AddrSpace | None = None


@dataclass(frozen=True, slots=True)
class RangeArg:
    """`axis_id` is the Range's identity (R62); `renumbered` is the bestiary's mark of the state after the kernel split."""

    axis_id: int
    type: AxisType
    renumbered: bool = True


@dataclass(frozen=True, slots=True)
class SinkArg:
    """Marks a Sink as the root of a kernel."""

    name: str


@dataclass(frozen=True, slots=True)
class SpecialArg:
    name: str


@dataclass(frozen=True, slots=True)
class WmmaArg:
    """Tensor-core configuration: dims are (N, M, K); axes are (axis id, factor) pairs as in the bestiary's WmmaMetadata."""

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
    """Code template of Custom and CUSTOMI, with the dtype of its result (void: a statement)."""

    fmt: str
    dtype: DType


@dataclass(frozen=True, slots=True)
class InsArg:
    """One machine instruction by mnemonic, with the dtype of its result."""

    name: str
    dtype: DType


@dataclass(frozen=True, slots=True)
class NameArg:
    """Name of a CustomFunction."""

    name: str


@dataclass(frozen=True, slots=True)
class SourceArg:
    code: str


# The bestiary's own arguments


@dataclass(frozen=True, slots=True)
class BBufferArg:
    """Size in elements; identity and device are sources."""

    size: int
    dtype: DType


@dataclass(frozen=True, slots=True)
class BufferizeArg:
    """BufferizeOpts: device None and LOCAL for shared memory; `removable` guards against inlining."""

    device: Device | None
    addrspace: AddrSpace
    removable: bool = True


@dataclass(frozen=True, slots=True)
class BIndexArg:
    """`gated`: the last source is the gate."""

    gated: bool = False


@dataclass(frozen=True, slots=True)
class GepArg:
    indices: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class VConstArg:
    """Lane constants, in order."""

    values: tuple[ConstArg, ...]
    dtype: DType


@dataclass(frozen=True, slots=True)
class LanesArg:
    """(axis id, factor) pairs of UNROLL and CONTRACT, outermost lane axis first."""

    axes: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class BParamArg:
    """`size` elements of `dtype` in slot `slot`; the device, when given, is a source."""

    slot: int
    size: int
    dtype: DType


@dataclass(frozen=True, slots=True)
class DefineArg:
    """DEFINE_LOCAL and DEFINE_REG: identity, size in elements, dtype."""

    id: int
    size: int
    dtype: DType


@dataclass(frozen=True, slots=True)
class DefineVarArg:
    name: str
    min_val: int
    max_val: int


@dataclass(frozen=True, slots=True)
class UniqueArg:
    id: int


@dataclass(frozen=True, slots=True)
class DeviceArg:
    device: Device


@dataclass(frozen=True, slots=True)
class BPadArg:
    begin: tuple[int, ...]
    end: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class BShrinkArg:
    begins: tuple[int, ...]
    ends: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class BufferViewArg:
    """`size` elements from element `offset`, same dtype."""

    size: int
    offset: int


@dataclass(frozen=True, slots=True)
class MSelectArg:
    index: int


@dataclass(frozen=True, slots=True)
class MultiArg:
    axis: int


# fmt: off
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
