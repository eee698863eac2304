"""R190: the remainder by an infinity is the dividend, and a zero has its sign. OpenVINO's Mod gives NaN, and +0."""

import math
import sys

import numpy as np
import openvino
from openvino import opset15 as ops

x, y = (ops.parameter([2], np.float32) for _ in "xy")
run = openvino.compile_model(openvino.Model([ops.mod(x, y)], [x, y]), "CPU")
a, b = np.array([1.0, -3.0], np.float32), np.array([np.inf, -0.375], np.float32)
expected, got = np.fmod(a, b).tolist(), run([a, b])[0].tolist()
print(f"expected {expected}, got {got}")
sys.exit(got[0] != 1.0 or math.copysign(1, got[1]) != -1)
