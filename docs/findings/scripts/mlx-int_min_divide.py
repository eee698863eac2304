"""R04: INT_MIN / -1 wraps. It ends MLX's process with SIGFPE in int32 and int64; int8 and int16 wrap."""

import subprocess
import sys

PROGRAM = """
import mlx.core as mx
mx.set_default_device(mx.cpu)
a, b = mx.array([mx.iinfo(mx.{0}).min], mx.{0}), mx.array([-1], mx.{0})
print(mx.{1}(a, b).item())
"""
cases = [(d, op) for d in ("int8", "int16", "int32", "int64") for op in ("floor_divide", "remainder")]
runs = {c: subprocess.run([sys.executable, "-c", PROGRAM.format(*c)], capture_output=True, text=True) for c in cases}
got = {f"{d} {op}": r.stdout.strip() or f"status {r.returncode}" for (d, op), r in runs.items()}
print(f"expected the least integer or 0, got {got}")
sys.exit(any(r.returncode for r in runs.values()))
