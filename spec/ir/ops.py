"""Every op of both reference documents, by name.

`Op` members follow the order of tinyspec's tables, then the bestiary's. A bestiary op whose name tinyspec also has, but with
another arity, order or argument (R100), is a member with the prefix `B_`; one that tinyspec has in the same form is the same
member.
"""

from __future__ import annotations

from enum import Enum, auto

from uops.spec.ir.members import quick


class Family(Enum):
    """The groups of the specification's tables; values are the words used in row ids."""

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


@quick
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
BITWISE = frozenset({Op.XOR, Op.OR, Op.AND})
SHIFT = frozenset({Op.SHR, Op.SHL})
BINARY = (
    frozenset({Op.ADD, Op.MUL, Op.MAX, Op.MOD, Op.IDIV, Op.SUB, Op.DIV, Op.POW, Op.THREEFRY, Op.MIN}) | COMPARE | BITWISE | SHIFT
)
TERNARY = frozenset({Op.WHERE, Op.MULACC})
#: Every op applied per element, `Cast` included: the ALU of both documents.
ALU = UNARY | BINARY | TERNARY | {Op.CAST}
MARKERS = frozenset({Op.CONTIGUOUS, Op.CONTIGUOUS_BACKWARD, Op.DETACH})
