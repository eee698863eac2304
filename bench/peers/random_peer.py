"""tinygrad's side of `random_tinygrad.py`: one expression per line of JSON on standard input, and the verdict on its
simplification.

An expression is a list of rows, sources first: `["in", k, dtype]`, `["const", value, dtype]`, `["cast", row, dtype]`, and `[op,
row, ...]`, with values for its inputs. tinygrad's own `exec_alu` evaluates the expression and its `UOp.simplify`, node by node. A
constant out of its dtype's range counts as the value that it wraps to.
"""

import json
import sys
from importlib import metadata

from tinygrad.dtype import dtypes
from tinygrad.uop.ops import GroupOp, Ops, UOp, exec_alu

DTYPES = {"int8": dtypes.int8, "uint8": dtypes.uint8, "int16": dtypes.int16, "uint16": dtypes.uint16, "bool": dtypes.bool}
MAKE = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
    "neg": lambda a: -a,
    "max": lambda a, b: a.maximum(b),
    "and": lambda a, b: a & b,
    "or": lambda a, b: a | b,
    "xor": lambda a, b: a ^ b,
    "shl": lambda a, b: a.alu(Ops.SHL, b),
    "shr": lambda a, b: a.alu(Ops.SHR, b),
    "idiv": lambda a, b: a // b,
    "mod": lambda a, b: a % b,
    "lt": lambda a, b: a < b,
    "ge": lambda a, b: a >= b,
    "ne": lambda a, b: a.ne(b),
    "eq": lambda a, b: a.eq(b),
    "not": lambda a: a.logical_not(),
    "where": lambda p, a, b: p.where(a, b),
}


def read_rows(rows):
    """Return the node of some rows, and its inputs by number."""
    nodes, inputs = [], {}
    for op, *src in rows:
        if op == "in":
            d = DTYPES[src[1]]
            nodes.append(UOp.variable(f"x{src[0]}", int(d.min), int(d.max), d, param=True))
            inputs[src[0]] = nodes[-1]
        elif op == "const":
            nodes.append(UOp.const(src[0], DTYPES[src[1]]))
        elif op == "cast":
            nodes.append(nodes[src[0]].cast(DTYPES[src[1]]))
        else:
            nodes.append(MAKE[op](*(nodes[k] for k in src)))
    return nodes[-1], inputs


def evaluate_root(root, leaves):
    """Evaluate a node with tinygrad's own `exec_alu`."""
    values = dict(leaves)
    for u in root.toposort():
        if u in values or u.dtype is dtypes.void:
            continue
        if u.op is Ops.CONST:
            values[u] = exec_alu(Ops.ADD, u.dtype, (u.val, 0)) if u.dtype is not dtypes.bool else u.val
        elif u.op is Ops.CAST:
            (operand,) = u.src
            x = values[operand]
            values[u] = u.dtype.const(x) if u.dtype is dtypes.bool else exec_alu(Ops.ADD, u.dtype, (x, 0))
        elif u.op in GroupOp.ALU:
            values[u] = exec_alu(u.op, u.dtype, tuple(values[s] for s in u.src))
    return values[root]


def check_simplification(task):
    """Return whether `simplify` changes an expression, and the first point at which its value differs."""
    if task == "version":
        return f"tinygrad {metadata.version('tinygrad')}"
    root, inputs = read_rows(task["rows"])
    after = root.simplify()
    for values in task["values"]:
        leaves = {inputs[int(k)]: v for k, v in values.items()}
        before_is, after_is = (evaluate_root(u, leaves) for u in (root, after))
        if before_is != after_is:
            at = {u.arg.name: leaves[u] for u in leaves}
            return {
                "changed": True,
                "wrong": {
                    "before": str(root.render(simplify=False)),
                    "after": str(after.render(simplify=False)),
                    "at": at,
                    "is": [before_is, after_is],
                },
            }
    return {"changed": after is not root}


def main():
    for line in sys.stdin:
        try:
            print(json.dumps({"answer": check_simplification(json.loads(line))}), flush=True)
        except Exception as e:
            print(json.dumps({"error": f"{type(e).__name__}: {e}"[:200]}), flush=True)


if __name__ == "__main__":
    main()
