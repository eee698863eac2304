"""R03, R04: a Idiv 0 is 0, a Mod 0 is a, and INT_MIN Idiv -1 wraps; none may trap. On CPU:X86, which needs clang."""

import subprocess
import sys

PROGRAM = """
import sys
from tinygrad import Tensor
from tinygrad.helpers import DEV
DEV.value = sys.argv[1]
print(({}).item())
"""
DEVICE = sys.argv[1] if sys.argv[1:] else "CPU:X86"


def run(expression: str) -> object:
    done = subprocess.run([sys.executable, "-c", PROGRAM.format(expression), DEVICE], capture_output=True, text=True, check=False)
    return int(done.stdout) if done.returncode == 0 else f"ended with status {done.returncode}"


expected = [0, 8, -(2**31)]
got = [run(e) for e in ("Tensor([8]) // Tensor([0])", "Tensor([8]) % Tensor([0])", "Tensor([-(2**31)]) // Tensor([-1])")]
print(f"expected {expected}, got {got}")
sys.exit(str(got) != str(expected))
