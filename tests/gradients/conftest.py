"""Puts this folder on the path: its test modules share their programs."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
