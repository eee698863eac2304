"""The generator of graphs with functions of the optional rows (R188), among elementwise ops and movement.

A value may be rounded, divided, sorted or converted by a function that the language has no op for. Compilers of other libraries
fuse and rewrite these too, and their bodies test ours. Operands are such that the rows say what the result is.
"""

from __future__ import annotations

from uops.backends.testing.values import draw_array
from uops.fuzz.generate.declared import SupportedOpDtypes
from uops.fuzz.generate.graphs import FuzzCase
from uops.fuzz.generate.maker import GraphMaker, Producer, Shape
from uops.fuzz.generate.producers import LEAVES, PRODUCERS
from uops.spec.choices import ChoiceSource
from uops.spec.ir import build as b
from uops.spec.ir import dtypes as dt
from uops.spec.ir.dtypes import DType
from uops.spec.ir.node import UOp
from uops.spec.ir.ops import Op
from uops.spec.rows.optional import OPTIONAL, OptionalFunction

#: Producers that may stand around an optional function.
# fmt: off
_AROUND = frozenset((
    "add", "mul", "sub", "div", "neg", "max", "trunc", "recip", "where", "cast", "cmplt", "cmpeq",
    "permute", "flip", "reshape", "expand", "pad", "shrink", "reduce_add", "reduce_max",
))
# fmt: on
#: Numbers of nodes and of elements of one graph.
_NODES = (3, 4, 4, 5, 6, 8)
_ELEMENTS = (8, 16, 33, 64)


def _list_operand_dtypes(m: GraphMaker, f: OptionalFunction, d: DType) -> tuple[DType, ...]:
    """Return the dtypes of operands for which a function gives `d`, of those that the backend declares. It must have Functions."""
    if not m.declared.supports_ops((Op.FUNCTION, Op.GETTUPLE)):
        return ()
    dtypes = tuple(x for x in f.dtypes if (f.result or x) is d)
    return tuple(x for x in dtypes if m.declared.supports_row(f.row, x))


def _make_producer(f: OptionalFunction) -> Producer:
    def admits(m: GraphMaker, d: DType, shape: Shape, budget: int) -> bool:
        is_vector = len(shape) == 1 and shape[0] > 0
        return bool(_list_operand_dtypes(m, f, d)) and (is_vector or not f.is_of_vector)

    def make(m: GraphMaker, d: DType, shape: Shape, budget: int) -> UOp:
        operand_dtype = m.draw.choice(_list_operand_dtypes(m, f, d))
        if f.is_partial and operand_dtype.is_float and m.body_params is None:  # small numbers, whose quotients fit the dtype
            small = [draw_array(m.draw, operand_dtype, shape, "small") for _ in range(f.arity)]
            return f.build(*(m.make_param_with_data(operand_dtype, x) for x in small))
        x, *divisor = (m.make_value(operand_dtype, shape, share) for share in m.split_budget(budget, f.arity))
        if f.is_partial and operand_dtype.is_integer:
            divisor = [b.or_(y, 1) for y in divisor]  # no divisor is 0
        if f.is_of_vector and x.dtype.is_float:
            x = b.add(x, 0.0)  # zeros of one sign: libraries order them as equals
        return f.build(x, *divisor)

    return Producer(f.function_name, admits, make, always=True)


#: A producer per function.
OPTIONAL_PRODUCERS = tuple(map(_make_producer, OPTIONAL.values()))


def generate_graph_with_optional_functions(draw: ChoiceSource, declared: SupportedOpDtypes) -> FuzzCase:
    """Generate a graph whose root is an optional function, or an op of one, if the backend declares any."""
    around = tuple(p for p in PRODUCERS if p.name in _AROUND)
    m = GraphMaker(draw, draw.choice(_ELEMENTS), dt.STORABLE, (*around, *OPTIONAL_PRODUCERS), LEAVES, declared=declared)
    shape = (m.draw_extent(m.max_elements),) if draw.chance(60) else m.draw_shape(m.max_elements)
    results = declared.filter_dtypes((dt.float32, dt.float32, dt.float16, dt.bfloat16, dt.float64, dt.int32, dt.int64, dt.int8))
    d, budget = draw.choice(results), draw.choice(_NODES)
    fitting = [p for p in OPTIONAL_PRODUCERS if p.admits(m, d, shape, budget)]
    value = draw.choice(fitting).make(m, d, shape, budget) if fitting else m.make_value(d, shape, budget)
    if draw.chance(40):
        value = b.tuple_(value, b.add(value, value) if d is not dt.bool_ else value)
    return FuzzCase(value, m.inputs)
