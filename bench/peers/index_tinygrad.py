"""tinygrad's side of `index_expressions.py`: lines of JSON on standard input and output, one answer per line.

`{"do": "version"}`; `{"do": "addresses", "shapes", "text"}` gives the addresses and gates that tinygrad's rangeify makes for a
program, as rows; `{"do": "simplify", "rows", "with"}` gives the rows after `UOp.simplify`, or ("valid") after that with the rules
for masks that its rangeify adds.
"""

from __future__ import annotations

import functools
import json
import sys
from importlib import metadata
from pathlib import Path

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


def read(rows):
    """The node of some rows."""
    made = []
    for row in rows:
        op, src = row[0], row[1:]
        if op == "const":
            made.append(UOp.const(row[1], dtypes.bool if isinstance(row[1], bool) else dtypes.weakint))
        elif op == "var":
            made.append(UOp.variable(*src, param=True))
        elif op == "loop":
            end = made[row[2]]
            made.append(UOp.range(end.val if end.op is Ops.CONST else end, row[1]))
        else:
            made.append(_node(op, [made[k] for k in src]))
    return made[-1]


def _node(op, s):
    if op in BINARY:
        return s[0].alu(BINARY[op], s[1])
    return {
        "le": lambda a, b: (b < a).logical_not(),
        "eq": lambda a, b: a.ne(b).logical_not(),
        "not": lambda a: a.logical_not(),
        "where": lambda p, a, b: p.where(a, b),
    }[op](*s)


def write(root):
    """The rows of a node."""
    from expressions import Writer

    out, at = Writer(), {}
    for u in root.toposort():
        if u.op is Ops.STACK or u.dtype is dtypes.void:  # what a PARAM says of its shape
            continue
        if u.op is Ops.CONST:
            at[u] = out.row("const", u.val)
        elif u.op is Ops.RANGE:
            at[u] = out.row("loop", u.arg[0], at[u.src[0]])
        elif u.op is Ops.PARAM:
            at[u] = out.row("var", u.arg.name, u.vmin, u.vmax)
        else:
            src = [at[s] for s in u.src]
            if u.op is Ops.CMPNE and u.src[0].dtype is dtypes.bool and u.src[1].op is Ops.CONST and u.src[1].val is True:
                at[u] = out.put("not", src[0])
            else:
                at[u] = out.put("where" if u.op is Ops.WHERE else NAMES[u.op], *src)
    return out.expression(at[root])


def simplify(rows, how):
    u = read(rows)
    return write(u.simplify() if how == "simplify" else graph_rewrite(u, symbolic + pm_simplify_valid))


def addresses(shapes, text):
    """Rows of the address and, where it is masked, of the gate of every operand, as rangeify has them."""
    t = [Tensor.empty(*shape) for shape in shapes]
    root = eval(text, {"t": t}).uop
    loops = iter(range(1 << 20))
    pending, seen, found = [(root, tuple(_loop(n, next(loops)) for n in root.shape))], set(), {}
    while pending:
        u, rngs = pending.pop()
        if (u, rngs) in seen:
            continue
        seen.add((u, rngs))
        if u.op in GroupOp.Movement:
            pending.append((u.src[0], apply_movement_op(u.op, u.src[0].shape, u.marg, rngs)))
        elif u.op is Ops.REDUCE:
            inner = tuple(_loop(n, next(loops)) for n in u.src[0].shape[: u.arg[1]])
            pending.append((u.src[0], inner + rngs))
        elif u.op is Ops.STACK:
            pending += [(s, rngs[1:]) for s in u.src]
        elif u.op in LEAVES:
            if u.shape and u.op is not Ops.CONST:
                index = functools.reduce(lambda a, b: a + b, [r * n if n > 1 else r for r, n in zip(rngs, _strides(u.shape))])
                index = index.simplify()  # masks move outward
                gate = index.get_valid()
                found[json.dumps(write(index.get_idx()))] = None
                if gate.op is not Ops.CONST:
                    found[json.dumps(write(gate))] = None
        else:
            pending += [(s, broadcast_rngs(u, s, rngs)) for s in u.src if s.dtype is not dtypes.void]
    return [json.loads(rows) for rows in found]


def _loop(n, axis):
    return UOp.range(n, axis) if n > 1 else UOp.const(0, dtypes.weakint)


def _strides(shape):
    found, n = [], 1
    for size in reversed(shape):
        found.append(n)
        n *= size
    return found[::-1]


def main():
    for line in sys.stdin:
        task = json.loads(line)
        try:
            if task["do"] == "version":
                answer = f"tinygrad {metadata.version('tinygrad')}"
            elif task["do"] == "addresses":
                answer = addresses(task["shapes"], task["text"])
            else:
                answer = simplify(task["rows"], task["with"])
            print(json.dumps({"answer": answer}), flush=True)
        except Exception as e:
            print(json.dumps({"error": f"{type(e).__name__}: {e}"[:300]}), flush=True)


if __name__ == "__main__":
    main()
