"""R46: a Bitcast of a Bitcast. XLA merges two to another shape, and then refuses its own program."""

import sys

import jax
import jax.extend.backend as backend
import numpy as np


def run(text, *arrays):
    client = backend.get_backend("cpu")
    program = client.compile_and_load(text, client.local_devices()[:1], backend.get_compile_options(1, 1))
    return [np.asarray(x) for x in program.execute([jax.device_put(a) for a in arrays])]


WIDEN = '%w = "stablehlo.bitcast_convert"(%a) : (tensor<2xi16>) -> tensor<i32>\n'
NARROW = '%r = "stablehlo.bitcast_convert"(%w) : (tensor<i32>) -> tensor<4xui8>\n return %r : tensor<4xui8>}'
try:
    got = run("func.func @main(%a: tensor<2xi16>) -> tensor<4xui8> {" + WIDEN + NARROW, np.array([1, 2], np.int16))[0].tolist()
except Exception as e:
    got = str(e).splitlines()[0]
narrow = run("func.func @main(%w: tensor<i32>) -> tensor<4xui8> {" + NARROW, np.int32(0x20001))[0].tolist()
print(f"expected [1, 0, 2, 0], got {got}; the second alone gives {narrow}")
sys.exit(got != [1, 0, 2, 0])
