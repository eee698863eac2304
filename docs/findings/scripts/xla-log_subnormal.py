"""R19: a subnormal is kept, or flushed to zero. The logarithm at run time is neither: every subnormal is 2^-150."""

import sys

import jax
import jax.extend.backend as backend
import numpy as np


def run(text, *arrays):
    client = backend.get_backend("cpu")
    program = client.compile_and_load(text, client.local_devices()[:1], backend.get_compile_options(1, 1))
    return [np.asarray(x) for x in program.execute([jax.device_put(a) for a in arrays])]


x = np.array([2.0**-149, 2.0**-140, 2.0**-127], np.float32)
kind = "tensor<3xf32>"
got = run(f"func.func @main(%a: {kind}) -> {kind} {{%r = stablehlo.log %a : {kind}\n return %r : {kind}}}", x)[0].tolist()
LOG = f"%r = stablehlo.log %a : {kind}\n return %r : {kind}}}"
bits = "0x" + x.tobytes().hex()
folded = f'func.func @main() -> {kind} {{%a = stablehlo.constant dense<"{bits}"> : {kind}\n' + LOG
POWER = f"%r = stablehlo.power %a, %b : {kind}\n"
power = f"func.func @main(%a: {kind}, %b: {kind}) -> {kind} {{{POWER} return %r : {kind}}}"
roots = run(power, x, np.full(3, 0.5, np.float32))[0].tolist()
print(f"expected {np.log(x).tolist()} (flushed: -inf), got {got}, folded {run(folded)[0].tolist()}")
print(f"expected {np.sqrt(x).tolist()} (flushed: 0), got {roots} for a power of 0.5")
sys.exit(len(set(got)) == 1 and got[0] > -np.inf)
