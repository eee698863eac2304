"""A generator of programs on several devices: sharded and replicated memory, ops on the parts, collectives and Stores.

It works from inputs to outputs. A statement takes values that are on the same devices, and keeps its result if the claims of the
axis allow it (R74). Stores order what they overwrite behind all reads (R55: unordered accesses race). One program in ten stays on
tuples of one device. Spec: collectives; R72 to R76 (devices and sharding), R79 (Param and axis), R82 (other ops on devices),
R83 (sharded indices, stores).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field

from uops.backends.testing.values import Array, draw_array
from uops.fuzz.generate.declared import SupportedOpDtypes
from uops.fuzz.generate.graphs import FuzzCase
from uops.spec.choices import ChoiceSource
from uops.spec.errors import SpecError
from uops.spec.ir import build as b
from uops.spec.ir import dtypes as dt
from uops.spec.ir.dtypes import DType
from uops.spec.ir.node import UOp
from uops.spec.ir.ops import Op
from uops.spec.rows.collectives import COLLECTIVES
from uops.spec.rows.signatures import accepts_dtypes
from uops.spec.verify.verifier import verify

#: Names of devices; a program takes the first ones of a row.
NAMES = (
    ("D0", "D1", "D2", "D3"),
    ("CPU:0", "CPU:1", "CPU:2", "CPU:3"),
    ("GPU:3", "GPU:0", "GPU:2", "GPU:1"),
    ("CPU", "D1", "GPU", "D3"),
)
#: Numbers of devices.
COUNTS = (2, 2, 3, 4)
#: The most elements of a value per device.
MOST = 64
_DTYPES = (dt.float32, dt.int32, dt.float32, dt.int64, dt.uint8, dt.float16, dt.bool_, dt.float64, dt.bfloat16, dt.int8)
_UNARY = (Op.NEG, Op.NOT, Op.SQRT, Op.RECIP, Op.TRUNC, Op.EXP2)
_BINARY = (Op.ADD, Op.MUL, Op.SUB, Op.MAX, Op.CMPLT, Op.CMPEQ, Op.XOR, Op.AND, Op.WHERE, Op.DIV)


@dataclass
class ShardedMemory:
    """A Buffer under construction: the reference after all Stores so far, and the values read from it since."""

    current: UOp
    reads: list[UOp] = field(default_factory=list)


class DeviceProgramMaker:
    """A program on several devices under construction, one statement after the other."""

    def __init__(self, draw: ChoiceSource, declared: SupportedOpDtypes) -> None:
        self.draw, self.inputs = draw, dict[str, Array | int]()
        count = draw.choice(COUNTS) if draw.chance(90) else 1
        self.devices = draw.choice(NAMES)[:count]
        self.dtypes = declared.filter_dtypes(_DTYPES)
        self.next_number = 0
        self.values: list[UOp] = []
        self.memories: list[ShardedMemory] = []
        for _ in range(draw.integer(1, 3)):
            self._add_sharded_or_replicated_input(draw.choice(self.dtypes[:3]) if draw.chance(70) else draw.choice(self.dtypes))

    def _add_sharded_or_replicated_input(self, d: DType) -> None:
        """Add a sharded Buffer, a sharded or replicated Param, or a value of one device that is copied to all."""
        n, draw = len(self.devices), self.draw
        self.next_number += 1
        form = draw.integer(0, 4)
        if form <= 1:
            size = draw.choice((1, 2, 3, n, 2 * n, 4 * n))
            unique = 1000 + self.next_number
            self.inputs[f"b{unique}"] = draw_array(draw, d, (n * size,), draw.choice(("small", "small", "edge")))
            memory = ShardedMemory(b.buffer(size, d, self.devices, unique=unique))
            self.memories.append(memory)
            self._add_read_or_copy(memory)
            return
        shape = [draw.choice((1, 2, 3, 4)) for _ in range(draw.integer(1, 3))]  # at most 64 elements on a device
        axis = draw.integer(0, len(shape) - 1) if form == 2 else 0 if form == 3 else None
        if axis is not None:
            shape[axis] *= n
        self.inputs[f"p{self.next_number}"] = draw_array(draw, d, tuple(shape), draw.choice(("small", "small", "edge")))
        if form == 3:
            self._append_if_small_raising_if_illegal(b.copy(b.param(self.next_number, shape, d), self.devices))
        else:
            self._append_if_small_raising_if_illegal(b.param(self.next_number, shape, d, self.devices, axis))

    def _add_read_or_copy(self, memory: ShardedMemory) -> None:
        """Read a Buffer as a value, where it is or on other devices."""
        u = memory.current
        copies = (b.load(u), b.contiguous(u), b.copy(u, self.devices[::-1]), b.copy(u, self.devices[0]))
        value = self.draw.choice(copies)
        memory.reads.append(value)
        self._append_if_small_raising_if_illegal(value)

    def _append_if_small_raising_if_illegal(self, value: UOp) -> bool:
        """Keep a value if it is small; return True if it is. Raises SpecError for one that breaks a claim."""
        verify(value)
        if math.prod(value.shape) > MOST * len(self.devices):
            return False
        self.values.append(value)
        return True

    def add_statement_if_legal(self) -> None:
        """Add one statement; one that breaks a claim is left out."""
        statement = self.draw.choice(_STATEMENTS)
        try:
            statement(self)
        except SpecError:
            return

    # Values

    def _draw_value(self) -> UOp:
        return self.values[self.draw.integer(0, len(self.values) - 1)]

    def _draw_partner(self, x: UOp) -> UOp:
        """Draw a value that an elementwise op takes beside `x`: of its dtype and devices, and sharded like it or whole."""

        def fits(y: UOp) -> bool:
            same = y.dtype is x.dtype and (y.device == x.device or y.device is None)
            return same and y.shape == x.shape and (x.axis is None or y.axis in (None, x.axis))

        partners = [y for y in self.values if fits(y)]
        if partners and self.draw.chance(75):
            return self.draw.choice(partners)
        return b.const(self.draw.integer(0, 1), x.dtype)

    def add_elementwise(self) -> None:
        """Add an elementwise op on a value and a partner."""
        x = self._draw_value()
        op = self.draw.choice(_UNARY + _BINARY * 2)
        if op in _UNARY:
            sources: tuple[UOp, ...] = (x,)
        elif op is Op.WHERE:
            sources = (UOp(Op.CMPEQ, (x, self._draw_partner(x))), x, self._draw_partner(x))
        else:
            sources = (x, self._draw_partner(x))
        is_reversed = not self.draw.chance(50)
        if is_reversed and op in _BINARY and op is not Op.WHERE:
            sources = sources[::-1]
        if accepts_dtypes(op, tuple(s.dtype for s in sources)):
            self._append_if_small_raising_if_illegal(UOp(op, sources))

    def add_cast_or_bitcast(self) -> None:
        """Add a Cast or a Bitcast."""
        x = self._draw_value()
        d = self.draw.choice(self.dtypes)
        if self.draw.chance(70):
            self._append_if_small_raising_if_illegal(b.cast(x, d))
        elif x.shape and dt.bool_ not in (d, x.dtype):
            self._append_if_small_raising_if_illegal(b.bitcast(x, d))

    def add_movement(self) -> None:
        """Add a movement op, mostly beside the sharded axis."""
        x, draw = self._draw_value(), self.draw
        if not x.shape:
            self._append_if_small_raising_if_illegal(b.reshape(x, (1,) * draw.integer(1, 2)))
            return
        k = draw.integer(0, len(x.shape) - 1)
        off = k != x.axis
        extent = int(x.shape[k])
        zeros = [0] * len(x.shape)
        form = draw.integer(0, 7)
        if form == 0:
            order = list(range(len(x.shape)))
            order.insert(draw.integer(0, len(order) - 1), order.pop(k))
            self._append_if_small_raising_if_illegal(b.permute(x, order))
        elif form == 1:
            parts = [p for p in range(1, extent + 1) if extent % p == 0]
            part = draw.choice(parts)
            self._append_if_small_raising_if_illegal(b.reshape(x, (*x.shape[:k], part, extent // part, *x.shape[k + 1 :])))
        elif form == 2 and k + 1 < len(x.shape):
            self._append_if_small_raising_if_illegal(b.reshape(x, (*x.shape[:k], extent * int(x.shape[k + 1]), *x.shape[k + 2 :])))
        elif form == 3 and off:
            self._append_if_small_raising_if_illegal(b.flip(x, [j == k for j in range(len(x.shape))]))
        elif form == 4 and off:
            before, behind = draw.integer(0, 2), draw.integer(0, 2)
            self._append_if_small_raising_if_illegal(
                b.pad_by(x, *[(before, behind) if j == k else (0, 0) for j in range(len(x.shape))])
            )
        elif form == 5 and off:
            first = draw.integer(0, extent - 1)
            size = draw.integer(1, extent - first)
            shape = [size if j == k else n for j, n in enumerate(x.shape)]
            self._append_if_small_raising_if_illegal(b.shrink(x, [first if j == k else z for j, z in enumerate(zeros)], shape))
        elif form == 6:
            wide = b.reshape(x, (*x.shape[:k], 1, *x.shape[k:]))
            n = draw.integer(2, 4)
            self._append_if_small_raising_if_illegal(b.expand(wide, (*x.shape[:k], n, *x.shape[k:])))
        elif form == 7:
            if k == 0 and off:
                self._append_if_small_raising_if_illegal(b.at(x, draw.integer(0, extent - 1)))
            else:
                self._append_if_small_raising_if_illegal(b.stack(x, self._draw_partner(x) if self.draw.chance(60) else x))

    def add_reduce(self) -> None:
        """Add a Reduce, half of them along the sharded axis."""
        x = self._draw_value()
        ops = [op for op in (Op.ADD, Op.MAX, Op.MUL) if accepts_dtypes(op, (x.dtype, x.dtype))]
        if not x.shape or not ops:
            return
        on_axis = x.axis is not None and self.draw.chance(50)
        axes = [x.axis] if on_axis else [self.draw.integer(0, len(x.shape) - 1)]
        reduced = b.reduce(x, self.draw.choice(ops), axes)  # type: ignore[arg-type]
        if self._append_if_small_raising_if_illegal(reduced):
            self._append_if_small_raising_if_illegal(b.reshape(reduced, [n for k, n in enumerate(reduced.shape) if k not in axes]))

    # Copies

    def add_copy(self) -> None:
        """Add a copy to one device, whole to each, or sharded, perhaps to fewer devices or in another order."""
        x, draw = self._draw_value(), self.draw
        n = len(self.devices)
        if draw.chance(30) or not x.shape:
            self._append_if_small_raising_if_illegal(b.copy(x, draw.choice((self.devices[0], self.devices[-1], "CPU"))))
        elif draw.chance(40):
            copies = b.copy(b.expand(b.reshape(x, (1, *x.shape)), (n, *x.shape)), self.devices)
            self._append_if_small_raising_if_illegal(b.reshape(b.replicated(copies, 0), x.shape))
        else:
            others = [
                self.devices,
                self.devices,
                self.devices[::-1],
                self.devices[: max(1, n // 2)],
                self.devices[:-1] or self.devices,
            ]
            self._append_if_small_raising_if_illegal(b.copy(x, draw.choice(others)))

    def add_collective_fitting_operand_placement(self) -> None:
        """Add a collective of the specification."""
        x = self._draw_value()
        if isinstance(x.device, tuple) and x.axis is not None:
            flat = b.reshape(x, (math.prod(x.shape),))
            n = len(x.device)
            if self.draw.chance(30) and flat.shape[0] % (n * n) == 0:  # a reduce-scatter of another op
                pieces = b.copy(b.permute(b.reshape(flat, (n, n, flat.shape[0] // n // n)), (1, 0, 2)), x.device)
                ops = [op for op in (Op.MAX, Op.MUL, Op.ADD) if accepts_dtypes(op, (x.dtype, x.dtype))]
                self._append_if_small_raising_if_illegal(b.reduce(pieces, self.draw.choice(ops), [1]))
                return
            names = ("gather", "reduce", "allgather", "reduce_scatter", "allreduce")
            self._append_if_small_raising_if_illegal(COLLECTIVES[self.draw.choice(names)](flat, x.device))
        elif not isinstance(x.device, tuple):
            flat = b.reshape(x, (math.prod(x.shape),))
            self._append_if_small_raising_if_illegal(COLLECTIVES[self.draw.choice(("broadcast", "scatter"))](flat, self.devices))

    # Memory

    def add_store(self) -> None:
        """Add a Store to all of a Buffer, or to some of its columns."""
        if not self.memories:
            return
        memory, draw = self.draw.choice(self.memories), self.draw
        n, size = len(self.devices), int(memory.current.shape[0])
        ordered = b.after(memory.current, *memory.reads) if memory.reads else memory.current
        rows = [k for k in (2, 3, 4) if size // n % k == 0]
        target = ordered
        if rows and draw.chance(60):
            k = draw.choice(rows)
            target = b.reshape(ordered, (size // k, k))
            if draw.chance(50):
                first = draw.integer(0, k - 1)
                target = b.shrink(target, [0, first], [size // k, draw.integer(1, k - first)])
        fitting = [v for v in self.values if v.dtype is target.dtype and v.device in (None, target.device)]
        values = [v for v in fitting if v.shape == target.shape and v.axis in (None, target.axis)]
        values += [b.reshape(v, target.shape) for v in fitting if v.shape != target.shape and _has_same_size(v, target)]
        values = [v for v in values if _has_axis_in(v, (None, target.axis))]
        if values and draw.chance(80):
            value = draw.choice(values)
        elif accepts_dtypes(Op.ADD, (target.dtype, target.dtype)):
            value = UOp(Op.ADD, (target, b.const(1, target.dtype)))
        else:
            return
        gate = (UOp(Op.CMPEQ, (value, value)),) if draw.chance(15) else ()
        stored = b.after(memory.current, b.store(target, value, *gate))
        verify(stored)
        memory.current, memory.reads = stored, []
        if draw.chance(60):
            self._add_read_or_copy(memory)

    def build_root(self) -> UOp:
        """Return the values of the last statements, where they are, and the Buffers."""
        values = [*self.values[-self.draw.integer(1, 3) :], *[m.current for m in self.memories if m.current.op is Op.AFTER]]
        return values[0] if len(values) == 1 else b.tuple_(*values)


def _has_same_size(v: UOp, target: UOp) -> bool:
    return math.prod(v.shape) == math.prod(target.shape)


def _has_axis_in(v: UOp, axes: tuple[int | None, ...]) -> bool:
    try:
        return v.axis in axes
    except SpecError:
        return False


#: Statements, each as often as it is drawn.
_STATEMENTS: tuple[Callable[[DeviceProgramMaker], None], ...] = (
    *(DeviceProgramMaker.add_elementwise,) * 4,
    *(DeviceProgramMaker.add_movement,) * 5,
    *(DeviceProgramMaker.add_reduce,) * 2,
    *(DeviceProgramMaker.add_copy,) * 2,
    *(DeviceProgramMaker.add_collective_fitting_operand_placement,) * 2,
    *(DeviceProgramMaker.add_store,) * 3,
    DeviceProgramMaker.add_cast_or_bitcast,
)


def generate_program_on_devices(draw: ChoiceSource, declared: SupportedOpDtypes) -> FuzzCase:
    """Generate a program of a few statements on several devices."""
    maker = DeviceProgramMaker(draw, declared)
    for _ in range(draw.integer(1, 10)):
        maker.add_statement_if_legal()
    return FuzzCase(maker.build_root(), maker.inputs)
