"""Under torchrun: run the updates described by the files on the command line, in turn.

Starting the processes takes longer than all updates of a test, so one start runs several.
"""

import sys
from pathlib import Path

from tracewheel.learner.backends.worker import work

if __name__ == "__main__":
    sys.exit(max(work(Path(job)) for job in sys.argv[1:]))
