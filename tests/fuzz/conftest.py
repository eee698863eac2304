"""Puts this folder on the path: tests and the processes that they start share planted bugs."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent / "planted"))
