"""The process in which cases are examined, as `uops.fuzz.campaign.serve`, with functions that record their calls.

Started alike, with the name of the backend in the variable `BACKEND_VARIABLE`. It imports the compiler after the hook is there.
"""

from __future__ import annotations

import os
import sys
from importlib import import_module

from uops.fuzz.reach.recorder import BACKEND_VARIABLE, install_recorder

if __name__ == "__main__":
    install_recorder(os.environ[BACKEND_VARIABLE])
    import_module("uops.fuzz.campaign.serve").main(sys.argv[1:])
