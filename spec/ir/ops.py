"""The ops of both reference documents, and the named sets of them.

`Op` members follow the order of tinyspec's tables, then of the bestiary's. A bestiary op that shares its name with a tinyspec op
but has another arity, order or argument (R100, forms) gets the prefix `B_`. Ops with the same form in both are one member.
"""

from __future__ import annotations

from enum import Enum, auto

from uops.spec.ir.members import fast_enum


class Family(Enum):
    """A group of the specification's op tables; the values appear in row ids."""

    SOURCE = "Source"
    MOVEMENT = "Movement"
    REDUCE = "Reduce"
    CALL = "Call"
    LOAD = "Load"
    STORE = "Store"
    ORDERING = "Ordering"
    ELEMENTWISE = "Elementwise"
    DECOMPOSED = "Decomposed"
    MARKER = "Marker"
    CODEGEN = "Codegen"
    BESTIARY = "Bestiary"


@fast_enum
class Op(Enum):
    """The operation of a node."""

    # Source
    PARAM = auto()
    BUFFER = auto()
    CONST = auto()
    BINARY = auto()
    # Movement
    PERMUTE = auto()
    FLIP = auto()
    RESHAPE = auto()
    EXPAND = auto()
    PAD = auto()
    SHRINK = auto()
    INDEX = auto()
    STACK = auto()
    REPLICATED = auto()
    SLICE = auto()
    BITCAST = auto()
    # Reduce
    REDUCE = auto()
    # Call
    FUNCTION = auto()
    CALL = auto()
    TUPLE = auto()
    GETTUPLE = auto()
    # Load, Store
    LOAD = auto()
    STORE = auto()
    # Ordering
    RANGE = auto()
    END = auto()
    AFTER = auto()
    GROUP = auto()
    SINK = auto()
    LINEAR = auto()
    # Elementwise
    RECIP = auto()
    TRUNC = auto()
    CAST = auto()
    ADD = auto()
    MUL = auto()
    MAX = auto()
    MOD = auto()
    IDIV = auto()
    CMPLT = auto()
    CMPNE = auto()
    XOR = auto()
    OR = auto()
    AND = auto()
    SHR = auto()
    SHL = auto()
    WHERE = auto()
    # Decomposed
    NEG = auto()
    SUB = auto()
    DIV = auto()
    CMPGT = auto()
    CMPGE = auto()
    CMPLE = auto()
    CMPEQ = auto()
    NOT = auto()
    EXP2 = auto()
    LOG2 = auto()
    SIN = auto()
    SQRT = auto()
    POW = auto()
    MULACC = auto()
    THREEFRY = auto()
    # Marker
    CONTIGUOUS = auto()
    CONTIGUOUS_BACKWARD = auto()
    DETACH = auto()
    # Codegen
    BARRIER = auto()
    INS = auto()
    SPECIAL = auto()
    IF = auto()
    ENDIF = auto()
    WMMA = auto()
    CUSTOM = auto()
    ATOMICADD = auto()
    CUSTOM_FUNCTION = auto()
    PROGRAM = auto()
    SOURCE = auto()
    # Bestiary: ops and forms that tinyspec does not have
    B_RANGE = auto()
    REDUCE_AXIS = auto()
    B_REDUCE = auto()
    ALLREDUCE = auto()
    B_BUFFER = auto()
    BUFFERIZE = auto()
    B_INDEX = auto()
    POINTER_INDEX = auto()
    B_LOAD = auto()
    B_STORE = auto()
    B_PROGRAM = auto()
    PROGRAM_BINARY = auto()
    B_BARRIER = auto()
    VECTORIZE = auto()
    GEP = auto()
    VCONST = auto()
    CAT = auto()
    PTRCAT = auto()
    UNROLL = auto()
    CONTRACT = auto()
    B_IF = auto()
    B_PARAM = auto()
    DEFINE_LOCAL = auto()
    DEFINE_VAR = auto()
    DEFINE_REG = auto()
    BIND = auto()
    UNIQUE = auto()
    LUNIQUE = auto()
    DEVICE = auto()
    B_PAD = auto()
    B_SHRINK = auto()
    COPY = auto()
    BUFFER_VIEW = auto()
    MSTACK = auto()
    MSELECT = auto()
    MULTI = auto()
    PRECAST = auto()
    CUSTOMI = auto()
    MIN = auto()

    def __repr__(self) -> str:
        return f"Op.{self.name}"


UNARY = frozenset({Op.RECIP, Op.TRUNC, Op.NEG, Op.NOT, Op.EXP2, Op.LOG2, Op.SIN, Op.SQRT})
COMPARE = frozenset({Op.CMPLT, Op.CMPNE, Op.CMPGT, Op.CMPGE, Op.CMPLE, Op.CMPEQ})
#: Sums, differences, products and negatives: those of integers wrap, and are otherwise exact.
RING_OPS = frozenset({Op.ADD, Op.SUB, Op.MUL, Op.NEG})
BITWISE = frozenset({Op.XOR, Op.OR, Op.AND})
SHIFT = frozenset({Op.SHR, Op.SHL})
#: The lesser and the greater of two values: reductions whose identity is an end of the dtype's range.
EXTREMES = frozenset({Op.MIN, Op.MAX})
BINARY = (
    frozenset({Op.ADD, Op.MUL, Op.MAX, Op.MOD, Op.IDIV, Op.SUB, Op.DIV, Op.POW, Op.THREEFRY, Op.MIN}) | COMPARE | BITWISE | SHIFT
)
TERNARY = frozenset({Op.WHERE, Op.MULACC})
#: Ops that are applied per element, `Cast` included: the ALU of both documents.
ALU = UNARY | BINARY | TERNARY | {Op.CAST}
_ORDER = list(Op)
_ELEMENTWISE = {*_ORDER[_ORDER.index(Op.RECIP) : _ORDER.index(Op.CONTIGUOUS)], Op.MIN}
assert _ELEMENTWISE == ALU, f"spec/ir/ops.py: add {_ELEMENTWISE ^ ALU} to UNARY, BINARY or TERNARY"
#: Ops that are the identity on data.
MARKERS = frozenset({Op.CONTIGUOUS, Op.CONTIGUOUS_BACKWARD, Op.DETACH})
#: Integer division and remainder.
DIVISION = frozenset({Op.IDIV, Op.MOD})
#: Reduction ops of the core language; the bestiary adds Min (R102).
REDUCTIONS = frozenset({Op.ADD, Op.MAX, Op.MUL})
#: Ops that are and on bools (R09, bool).
BOOL_CONJUNCTIONS = frozenset({Op.AND, Op.MUL})
#: Movement ops that change only extents and the order of axes and elements.
RESHAPING = frozenset({Op.PERMUTE, Op.FLIP, Op.RESHAPE, Op.EXPAND, Op.PAD, Op.SHRINK})
#: Ops at which a chain of views of memory ends, in the core language.
MEMORY_ROOTS = frozenset({Op.BUFFER, Op.PARAM})
#: Ops that read or write memory elementwise.
ACCESSES = frozenset({Op.LOAD, Op.STORE})
#: Ops that write the memory that their first source names.
WRITES = frozenset({Op.STORE, Op.ATOMICADD})
#: Ops that read or write memory inside a kernel.
KERNEL_ACCESSES = ACCESSES | WRITES
#: Ops that combine effects without an order.
EFFECT_GROUPS = frozenset({Op.GROUP, Op.SINK})
#: Instructions of a Linear that open a block, and those that close one.
BLOCK_OPENERS = frozenset({Op.RANGE, Op.IF})
BLOCK_CLOSERS = frozenset({Op.END, Op.ENDIF})
#: Instructions that the lanes of a workgroup, or of a warp, execute together.
COLLECTIVE = frozenset({Op.BARRIER, Op.WMMA})
#: Instructions whose meaning is a text or a name of the target, or is registered.
OPAQUE_INSTRUCTIONS = frozenset({Op.CUSTOM, Op.CUSTOMI, Op.INS})
#: Ops that only kernels have: a scope with one of them, outside of loops that it closes, is a kernel as a whole (R166).
KERNEL_FORMS = OPAQUE_INSTRUCTIONS | {
    Op.RANGE,
    Op.SPECIAL,
    Op.BARRIER,
    Op.IF,
    Op.ENDIF,
    Op.WMMA,
    Op.ATOMICADD,
    Op.LINEAR,
    Op.PROGRAM,
}
#: Ops whose source 0 is a body with Params of its own.
CALL_LIKE = frozenset({Op.FUNCTION, Op.CALL})
#: Ops that give a value of another dtype: by value, or by bits.
CONVERSIONS = frozenset({Op.CAST, Op.BITCAST})
#: Movement ops that take the shape of their result.
TO_SHAPE = frozenset({Op.RESHAPE, Op.EXPAND})
#: Ops that number iterations of a loop or lanes of a launch, below their bound.
COUNTERS = frozenset({Op.RANGE, Op.SPECIAL})
#: Ops of the core language that close loops inside a kernel.
LOOP_CLOSERS = frozenset({Op.END, Op.REDUCE})
#: Ops around the effects of a kernel's body: closed loops, and groups.
EFFECT_WRAPPERS = frozenset({Op.END, Op.GROUP})
#: Roots whose sources are the results of a program.
RESULT_ROOTS = EFFECT_GROUPS | {Op.TUPLE}
#: Whole memory, perhaps after effects on it.
WHOLE_MEMORY = MEMORY_ROOTS | {Op.AFTER}
#: Ops that lead from memory to an address in it, without a change of dtype.
ADDRESSING = frozenset({Op.INDEX, Op.AFTER})
#: Views of memory inside a kernel.
KERNEL_VIEWS = ADDRESSING | {Op.BITCAST}
