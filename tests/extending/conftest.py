"""Puts this folder on the path: its test modules share the harness of planted extensions."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
