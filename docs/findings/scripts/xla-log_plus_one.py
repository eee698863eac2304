"""R17: within 2 ulp. log_plus_one of float64 is 128 ulp off at -0.41419, where log(1 + x) of XLA itself is not."""

import sys

import jax
import jax.extend.backend as backend
import numpy as np


def run(text, *arrays):
    client = backend.get_backend("cpu")
    program = client.compile_and_load(text, client.local_devices()[:1], backend.get_compile_options(1, 1))
    return [np.asarray(x) for x in program.execute([jax.device_put(a) for a in arrays])]


jax.config.update("jax_enable_x64", True)
x, kind = np.array([-0.41419144]), "tensor<1xf64>"
ONE = f"%o = stablehlo.constant dense<1.0> : {kind}\n%s = stablehlo.add %a, %o : {kind}\n%r = stablehlo.log %s : {kind}\n"
got, plain = (
    run(f"func.func @main(%a: {kind}) -> {kind} {{{body} return %r : {kind}}}", x)[0]
    for body in (f"%r = stablehlo.log_plus_one %a : {kind}\n", ONE)
)
ulps = [float(abs(y - np.log1p(x))[0] / np.spacing(abs(y))[0]) for y in (got, plain)]
print(f"expected {np.log1p(x)[0]!r}, got {got[0]!r}, {ulps[0]} ulp off; log(1 + x) is {ulps[1]} ulp off")
sys.exit(ulps[0] > 16)
