"""tinygrad's side of `random_tinygrad.py`: one expression per line of JSON on standard input, and what became of it.

An expression is a list of rows, sources first: `["in", k, dtype]`, `["const", value, dtype]`, `["cast", row, dtype]`, and
`[op, row, ...]`. With it come values for its inputs. Both the expression and what `UOp.simplify` makes of it are evaluated by
tinygrad's own `exec_alu`, node by node; a constant out of its dtype's range counts as the value that it wraps to.
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


def read(rows):
    made, inputs = [], {}
    for op, *src in rows:
        if op == "in":
            d = DTYPES[src[1]]
            made.append(UOp.variable(f"x{src[0]}", int(d.min), int(d.max), d, param=True))
            inputs[src[0]] = made[-1]
        elif op == "const":
            made.append(UOp.const(src[0], DTYPES[src[1]]))
        elif op == "cast":
            made.append(made[src[0]].cast(DTYPES[src[1]]))
        else:
            made.append(MAKE[op](*(made[k] for k in src)))
    return made[-1], inputs


def value(root, leaves):
    found = dict(leaves)
    for u in root.toposort():
        if u in found or u.dtype is dtypes.void:
            continue
        if u.op is Ops.CONST:
            found[u] = exec_alu(Ops.ADD, u.dtype, (u.val, 0)) if u.dtype is not dtypes.bool else u.val
        elif u.op is Ops.CAST:
            found[u] = (
                u.dtype.const(found[u.src[0]]) if u.dtype is dtypes.bool else exec_alu(Ops.ADD, u.dtype, (found[u.src[0]], 0))
            )
        elif u.op in GroupOp.ALU:
            found[u] = exec_alu(u.op, u.dtype, tuple(found[s] for s in u.src))
    return found[root]


def answer(task):
    if task == "version":
        return f"tinygrad {metadata.version('tinygrad')}"
    root, inputs = read(task["rows"])
    after = root.simplify()
    for values in task["values"]:
        leaves = {inputs[int(k)]: v for k, v in values.items()}
        before_is, after_is = (value(u, leaves) for u in (root, after))
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
            print(json.dumps({"answer": answer(json.loads(line))}), flush=True)
        except Exception as e:
            print(json.dumps({"error": f"{type(e).__name__}: {e}"[:200]}), flush=True)


if __name__ == "__main__":
    main()
