"""R04: INT_MIN / -1 wraps. By truncation it ends PyTorch's process with SIGFPE; `rounding_mode="floor"` gives INT_MIN."""

import subprocess
import sys

PROGRAM = """
import torch
a, b = torch.tensor([-2**31], dtype=torch.int32), torch.tensor([-1], dtype=torch.int32)
print(torch.div(a, b, rounding_mode={!r}).item())
"""
runs = {m: subprocess.run([sys.executable, "-c", PROGRAM.format(m)], capture_output=True, text=True) for m in ("floor", "trunc")}
got = {m: r.stdout.strip() or f"status {r.returncode}" for m, r in runs.items()}
print(f"expected -2147483648 twice, got {got}")
sys.exit(runs["trunc"].returncode != 0)
