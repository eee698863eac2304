"""The first result of one workload under jax.jit, operands on the device: `python compile_jax.py NAME FOLDER`, one line of JSON."""

from __future__ import annotations

import json
import sys
import time
from functools import partial
from pathlib import Path

import jax
import jax.numpy as jnp
from jax_peer import TABLE
from protocol import read_operands


def main(name, folder):
    operands = [jnp.asarray(a) for a in read_operands(Path(folder))]
    for a in operands:
        a.block_until_ready()
    wall, cpu = time.perf_counter(), time.process_time()
    jax.jit(partial(TABLE[name], "plain"))(*operands).block_until_ready()
    print(json.dumps({"wall": time.perf_counter() - wall, "cpu": time.process_time() - cpu}))


if __name__ == "__main__":
    main(*sys.argv[1:])
