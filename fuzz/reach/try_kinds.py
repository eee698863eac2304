"""The process that tries cases of each kind, and says which of them ran some lines.

Started as `python -m uops.fuzz.reach.try_kinds SETUP LINES SECONDS`: a Setup as JSON, {module: lines}, and the processor seconds
for each kind of the Setup. It prints a line of JSON for each case, {kind, seconds, reached}, and {kind} before the first case of a
kind. It imports the compiler after the hook is there.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from importlib import import_module
from typing import Any

from uops.fuzz.reach.recorder import collect_reached_functions, install_line_recorder

#: Minimum number of cases of each kind.
FEWEST = 3


def main(arguments: list[str]) -> None:
    """Try the kinds of a Setup, one after the other."""
    setup_text, lines_text, seconds_text = arguments
    lines_by_module = {module: frozenset(lines) for module, lines in json.loads(lines_text).items()}
    # The modules of the recorder itself are imported. Without any other, it is an error.
    install_line_recorder({m: lines for m, lines in lines_by_module.items() if m not in sys.modules} or lines_by_module)
    serve, examine = import_module("uops.backends.worker.serve"), import_module("uops.fuzz.campaign.examine")
    threading.Thread(target=serve.poll_parent_and_exit_when_orphaned, args=(os.getppid(),), daemon=True).start()
    setup = json.loads(setup_text)
    for kind in setup["kinds"]:
        runner = examine.CaseRunner(examine.Setup.from_json({**setup, "kinds": [kind]}))
        _print_line({"kind": kind})
        spent, k = 0.0, 0
        while spent < float(seconds_text) or k < FEWEST:
            reached = set[str]()
            start = time.process_time()
            with collect_reached_functions(reached):
                runner.generate_and_judge_case(k)
            seconds = time.process_time() - start
            _print_line({"kind": kind, "seconds": seconds, "reached": bool(reached)})
            spent, k = spent + seconds, k + 1


def _print_line(document: dict[str, Any]) -> None:
    print(json.dumps(document), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
