"""R32: a Reduce of nothing is the identity. MLX multiplies memory that is not the array's, or never ends."""

import subprocess
import sys

PROGRAM = """
import mlx.core as mx, numpy as np
mx.set_default_device(mx.cpu)
print(mx.prod(mx.array(np.ones((2, 0, 3), np.float32)), (0, 1)).tolist(), flush=True)
mx.eval(mx.sum(mx.array(np.ones((2, 3, 4), np.int8)), (0, 2)))
print(mx.sum(mx.array(np.ones((2, 0), np.int8)), 1).tolist(), flush=True)
"""
EXPECTED = "[1.0, 1.0, 1.0] [0, 0]"


def run() -> str:
    with subprocess.Popen([sys.executable, "-c", PROGRAM], stdout=subprocess.PIPE, text=True) as process:
        try:
            output, _ = process.communicate(timeout=5)
        except subprocess.TimeoutExpired:
            process.kill()
            return " ".join([*process.communicate()[0].split("\n"), "no end after 5 s"])
    return " ".join(output.split("\n")).strip() or f"status {process.returncode}"


got = [run() for _ in range(4)]
print(f"expected {EXPECTED} four times, got {got}")
sys.exit(any(g != EXPECTED for g in got))
