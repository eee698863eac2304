"""tinygrad's side of `index_expressions.py`: lines of JSON on standard input and output, one answer per line.

- `{"do": "version"}`
- `{"do": "addresses", "shapes", "text", "masked"}`: the addresses and gates that tinygrad's rangeify makes for a program, as
  rows; with `masked` each address with its gate, and only those that have one.
- `{"do": "simplify", "rows", "with"}`: the rows after `UOp.simplify`, or ("valid") after that with the rules for masks of its
  rangeify.
"""

from __future__ import annotations

import functools
import json
import os
import sys
from importlib import metadata
from pathlib import Path

os.environ.setdefault("DEV", "NULL")  # nothing is run, so no device is needed

from tinygrad import Tensor
from tinygrad.dtype import dtypes
from tinygrad.schedule.indexing import apply_movement_op, broadcast_rngs
from tinygrad.uop.ops import GroupOp, Ops, UOp, graph_rewrite
from tinygrad.uop.symbolic import pm_simplify_valid, symbolic

sys.path.insert(0, str(Path(__file__).parents[1]))  # `expressions`, which both sides share
BINARY = {
    "add": Ops.ADD, "mul": Ops.MUL, "idiv": Ops.FLOORDIV, "mod": Ops.FLOORMOD, "max": Ops.MAX, "lt": Ops.CMPLT, "ne": Ops.CMPNE,
    "and": Ops.AND, "or": Ops.OR,
}  # fmt: skip
NAMES = {op: name for name, op in BINARY.items()}
LEAVES = (Ops.BUFFER, Ops.PARAM, Ops.CONST)


def read_rows(rows):
    """Return the node of some rows."""
    nodes = []
    for row in rows:
        op, src = row[0], row[1:]
        if op == "const":
            nodes.append(UOp.const(row[1], dtypes.bool if isinstance(row[1], bool) else dtypes.weakint))
        elif op == "var":
            nodes.append(UOp.variable(*src, param=True))
        elif op == "loop":
            end = nodes[row[2]]
            nodes.append(UOp.range(end.val if end.op is Ops.CONST else end, row[1]))
        else:
            nodes.append(_make_node(op, [nodes[k] for k in src]))
    return nodes[-1]


def _make_node(op, s):
    """Return the node of an op."""
    if op in BINARY:
        return s[0].alu(BINARY[op], s[1])
    return {
        "le": lambda a, b: (b < a).logical_not(),
        "eq": lambda a, b: a.ne(b).logical_not(),
        "not": lambda a: a.logical_not(),
        "where": lambda p, a, b: p.where(a, b),
        "masked": lambda gate, address: address.valid(gate),
    }[op](*s)


def write_rows(root):
    """Return the rows of a node."""
    from expressions import ExpressionWriter  # late: found on the path that is inserted above

    out, at = ExpressionWriter(), {}
    order = root.get_idx().toposort() | root.get_valid().toposort()
    for u in order:
        if u.op is Ops.STACK or u.dtype is dtypes.void:  # what a PARAM says of its shape
            continue
        if u.op is Ops.CONST:
            at[u] = out.add_row("const", u.val)
        elif u.op is Ops.RANGE:
            bound, *_ = u.src
            at[u] = out.add_row("loop", u.arg[0], at[bound])
        elif u.op is Ops.PARAM:
            at[u] = out.add_row("var", u.arg.name, u.vmin, u.vmax)
        else:
            operand, *arguments = u.src
            is_not = (
                u.op is Ops.CMPNE and operand.dtype is dtypes.bool and arguments[0].op is Ops.CONST and arguments[0].val is True
            )
            if is_not:
                at[u] = out.add_op("not", at[operand])
            else:
                at[u] = out.add_op("where" if u.op is Ops.WHERE else NAMES[u.op], *(at[s] for s in u.src))
    address, gate = root.get_idx(), root.get_valid()
    return out.expression(at[address] if gate.op is Ops.CONST else out.add_op("masked", at[gate], at[address]))


def simplify(rows, how):
    """Return the rows of the simplified expression, with or without the rules for masks."""
    u = read_rows(rows)
    return write_rows(u.simplify() if how == "simplify" else graph_rewrite(u, symbolic + pm_simplify_valid))


def collect_addresses(shapes, text, masked=False):
    """Return rows of the address and, if it is masked, of the gate of every operand, as rangeify makes them.

    With `masked`, return the rows of each address with its gate.
    """
    t = [Tensor.empty(*shape) for shape in shapes]
    root = eval(text, {"t": t}).uop
    loops = iter(range(1 << 20))
    pending, seen, expressions = [(root, tuple(_loop(n, next(loops)) for n in root.shape))], set(), {}
    while pending:
        u, rngs = pending.pop()
        if (u, rngs) in seen:
            continue
        seen.add((u, rngs))
        if u.op in GroupOp.Movement:
            operand, *_ = u.src
            pending.append((operand, apply_movement_op(u.op, operand.shape, u.marg, rngs)))
        elif u.op is Ops.REDUCE:
            operand, *_ = u.src
            inner = tuple(_loop(n, next(loops)) for n in operand.shape[: u.arg[1]])
            pending.append((operand, inner + rngs))
        elif u.op is Ops.STACK:
            pending += [(s, rngs[1:]) for s in u.src]
        elif u.op in LEAVES:
            if u.shape and u.op is not Ops.CONST:
                index = functools.reduce(
                    lambda a, b: a + b, [r * n if n > 1 else r for r, n in zip(rngs, _row_major_strides(u.shape))]
                )
                index = index.simplify()  # masks move outward
                gate = index.get_valid()
                if masked:
                    if gate.op is not Ops.CONST:
                        expressions[json.dumps(write_rows(index))] = None
                    continue
                expressions[json.dumps(write_rows(index.get_idx()))] = None
                if gate.op is not Ops.CONST:
                    expressions[json.dumps(write_rows(gate))] = None
        else:
            pending += [(s, broadcast_rngs(u, s, rngs)) for s in u.src if s.dtype is not dtypes.void]
    return [json.loads(rows) for rows in expressions]


def _loop(n, axis):
    """Return a loop, or 0 in place of a loop of one iteration."""
    return UOp.range(n, axis) if n > 1 else UOp.const(0, dtypes.weakint)


def _row_major_strides(shape):
    """Return the row-major strides of a shape."""
    strides, n = [], 1
    for size in reversed(shape):
        strides.append(n)
        n *= size
    return strides[::-1]


def main():
    for line in sys.stdin:
        task = json.loads(line)
        try:
            if task["do"] == "version":
                answer = f"tinygrad {metadata.version('tinygrad')}"
            elif task["do"] == "addresses":
                answer = collect_addresses(task["shapes"], task["text"], task.get("masked", False))
            else:
                answer = simplify(task["rows"], task["with"])
            print(json.dumps({"answer": answer}), flush=True)
        except Exception as e:
            print(json.dumps({"error": f"{type(e).__name__}: {e}"[:300]}), flush=True)


if __name__ == "__main__":
    main()
