"""One campaign in a process whose package has a mutant: it ends with the first finding.

Started as `python -m uops.fuzz.mutants.trial SETUP DIRECTORY MOST`, with the package of an overlay first on the path. What it found
is in the journal of the directory; who started it looks at that, and ends it when its time is over.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from pathlib import Path

from uops.backends.worker.serve import end_with_parent
from uops.fuzz.campaign.campaign import Campaign
from uops.fuzz.campaign.examine import Setup
from uops.fuzz.mutants.hunt import PATIENT


def main(arguments: list[str]) -> None:
    """Hunt until something is found, and reduce that by `MOST` questions."""
    threading.Thread(target=end_with_parent, args=(os.getppid(),), daemon=True).start()
    setup, directory, most = arguments
    Campaign(Setup.of(json.loads(setup)), Path(directory), jobs=1, limits=PATIENT, most=int(most), until=1).run()


if __name__ == "__main__":
    main(sys.argv[1:])
