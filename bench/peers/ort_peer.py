"""ONNX Runtime: one session per workload, on a graph of its own operators (LayerNormalization, Gelu, ...)."""

from __future__ import annotations

import os

import numpy as np
import onnxruntime
from formulas import GEMMS
from onnx import TensorProto, helper
from protocol import serve
from resnet import PeerResNetOps, make_resnet

TYPES = {"float32": TensorProto.FLOAT, "int32": TensorProto.INT32, "int64": TensorProto.INT64}


class OnnxGraph:
    """Nodes and initializers under construction. Every method returns the name of a value."""

    def __init__(self):
        self.nodes, self.constants = [], []

    def __call__(self, op, *inputs, **attributes):
        """Add a node."""
        name = f"t{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, list(inputs), [name], **attributes))
        return name

    def ints(self, *values):
        """Add a vector of int64."""
        name = f"c{len(self.constants)}"
        self.constants.append(helper.make_tensor(name, TensorProto.INT64, [len(values)], values))
        return name

    def number(self, value):
        """Add a float scalar."""
        name = f"c{len(self.constants)}"
        self.constants.append(helper.make_tensor(name, TensorProto.FLOAT, [], [value]))
        return name

    def ones(self, n, value):
        """Add a vector of n equal floats."""
        name = f"c{len(self.constants)}"
        self.constants.append(helper.make_tensor(name, TensorProto.FLOAT, [n], [value] * n))
        return name

    def view_operand(self, name, a, layout):
        """Add the view of an operand that is stored in a layout."""
        if a.dtype.kind != "f" or layout == "plain":
            return name
        if layout == "transposed":
            last = list(range(a.ndim))
            return name if a.ndim < 2 else self("Transpose", name, perm=[*last[:-2], last[-1], last[-2]])
        return self("Slice", name, self.ints(0), self.ints(a.shape[-1]), self.ints(a.ndim - 1), self.ints(2))

    def attention(self, q, k, v, rank, width):
        """Add scaled dot-product attention."""
        order = [*range(rank - 2), rank - 1, rank - 2]
        scores = self("Mul", self("MatMul", q, self("Transpose", k, perm=order)), self.number(width**-0.5))
        return self("MatMul", self("Softmax", scores, axis=-1), v)

    def norm(self, x, n):
        """Add a layer normalization."""
        return self("LayerNormalization", x, self.ones(n, 1.0), self.ones(n, 0.0), epsilon=1e-5)

    def encoder_layer(self, x, p, sequence, hidden, heads):
        """Add one layer of the encoder."""
        query, key, value, out, up, down = p

        def split(w):
            parts = self("Reshape", self("MatMul", x, w), self.ints(1, sequence, heads, hidden // heads))
            return self("Transpose", parts, perm=[0, 2, 1, 3])

        attended = self("Transpose", self.attention(split(query), split(key), split(value), 4, hidden // heads), perm=[0, 2, 1, 3])
        joined = self("Reshape", attended, self.ints(1, sequence, hidden))
        x = self.norm(self("Add", x, self("MatMul", joined, out)), hidden)
        grown = self("Gelu", self("MatMul", x, up), approximate="tanh")
        return self.norm(self("Add", x, self("MatMul", grown, down)), hidden)

    def build_encoder(self, arrays, x, *p):
        """Add the encoder."""
        _, sequence, hidden = arrays[0].shape
        for k in range(0, len(p), 6):
            x = self.encoder_layer(x, p[k : k + 6], sequence, hidden, 6)
        return x

    def make_resnet(self, shapes):
        """Return a function that adds ResNet-18."""
        return make_resnet(
            PeerResNetOps(
                lambda x, w, stride, padding: self("Conv", x, w, pads=[padding] * 4, strides=[stride] * 2),
                lambda x, *p: self("BatchNormalization", x, *p, epsilon=1e-5),
                lambda x: self("Relu", x),
                lambda x, y: self("Add", x, y),
                lambda x: self("MaxPool", x, kernel_shape=[3, 3], pads=[1] * 4, strides=[2, 2]),
                lambda x, w, b: self("Add", self("MatMul", self("ReduceMean", x, self.ints(2, 3), keepdims=0), w), b),
                lambda name: shapes[name].shape[-1],
            )
        )


TABLE = {
    "conv2d": lambda g, s, x, w: g("Conv", x, w, pads=[1, 1, 1, 1]),
    "softmax": lambda g, s, a: g("Softmax", a, axis=-1),
    "layernorm": lambda g, s, a, w, b: g("LayerNormalization", a, w, b, epsilon=1e-5),
    "gelu": lambda g, s, a: g("Gelu", a, approximate="tanh"),
    "sum": lambda g, s, a: g("ReduceSum", a, keepdims=0),
    "row-sum": lambda g, s, a: g("ReduceSum", a, g.ints(1), keepdims=0),
    "col-sum": lambda g, s, a: g("ReduceSum", a, g.ints(0), keepdims=0),
    "transpose": lambda g, s, a: g("Transpose", a, perm=[1, 0]),
    "attention": lambda g, s, q, k, v: g.attention(q, k, v, 3, s),
    "cumsum": lambda g, s, a: g("CumSum", a, g.ints(0)),
    "gather": lambda g, s, table, i: g("Gather", table, i),
    "argmax": lambda g, s, a: g("ArgMax", a, axis=1, keepdims=0),
} | dict.fromkeys(GEMMS, lambda g, s, a, b: g("MatMul", a, b))


def width(a, layout):
    """Return the extent of the last axis of the operand's view."""
    return a.shape[-2] if layout == "transposed" and a.ndim > 1 else a.shape[-1] // (2 if layout == "strided" else 1)


def prepare(name, arrays, layout):
    """Return a function that runs a workload in a session."""
    if any(a.dtype.name not in TYPES for a in arrays):
        raise NotImplementedError(f"no {arrays[0].dtype.name} on the CPU")
    g = OnnxGraph()
    names = [f"x{k}" for k in range(len(arrays))]
    operands = [g.view_operand(n, a, layout) for n, a in zip(names, arrays)]
    if name == "encoder":
        out = g.build_encoder(arrays, *operands)
    elif name == "resnet18":
        out = g.make_resnet(dict(zip(names, arrays)))(*operands)
    else:
        out = TABLE[name](g, width(arrays[0], layout), *operands)
    inputs = [helper.make_tensor_value_info(n, TYPES[a.dtype.name], a.shape) for n, a in zip(names, arrays)]
    kind = TensorProto.INT64 if name == "argmax" else TensorProto.FLOAT
    graph = helper.make_graph(g.nodes, name, inputs, [helper.make_tensor_value_info(out, kind, None)], g.constants)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = int(os.environ["BENCH_THREADS"])
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    feed = {n: np.ascontiguousarray(a) for n, a in zip(names, arrays)}
    return lambda: session.run(None, feed)[0]


if __name__ == "__main__":
    serve(prepare, onnxruntime.__version__)
