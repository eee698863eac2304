"""One campaign in a process whose package contains a mutant; it ends with the first finding.

Started as `python -m uops.fuzz.mutants.trial SETUP DIRECTORY MOST`, with the package of an overlay first on the import path.
The findings are in the journal of the directory. The process that started it reads them, and ends it when its time is over.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from pathlib import Path

from uops.backends.worker.serve import poll_parent_and_exit_when_orphaned
from uops.fuzz.campaign.campaign import Campaign
from uops.fuzz.campaign.examine import Setup
from uops.fuzz.mutants.hunt import PATIENT


def main(arguments: list[str]) -> None:
    """Hunt until something is found, and reduce it by at most `MOST` questions."""
    threading.Thread(target=poll_parent_and_exit_when_orphaned, args=(os.getppid(),), daemon=True).start()
    setup, directory, max_questions = arguments
    campaign = Campaign(
        Setup.from_json(json.loads(setup)), Path(directory), limits=PATIENT, max_questions=int(max_questions), max_findings=1
    )  # fmt: skip
    campaign.run()


if __name__ == "__main__":
    main(sys.argv[1:])
