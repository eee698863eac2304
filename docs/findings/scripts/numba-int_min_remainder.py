"""R04: INT_MIN % -1 is 0. It ends Numba's process with SIGFPE for arrays of every signed dtype; `%` of scalars is 0."""

import subprocess
import sys

PROGRAM = """
import numba, numpy as np
f = numba.njit(lambda a, b: {0})
print(f({1}))
"""
MIN = "np.iinfo(np.{0}).min"
cases = {
    f"array {d}": ("np.remainder(a, b)", f"np.array([{MIN.format(d)}], np.{d}), np.array([-1], np.{d})") for d in ("int8", "int32")
}
cases["scalar int64"] = ("a % b", f"{MIN.format('int64')}, -1")
runs = {k: subprocess.run([sys.executable, "-c", PROGRAM.format(*c)], capture_output=True, text=True) for k, c in cases.items()}
print(f"expected 0, got { {k: r.stdout.strip() or f'status {r.returncode}' for k, r in runs.items()} }")
sys.exit(any(r.returncode for r in runs.values()))
