"""Under torchrun: the updates that the files named on the command line describe, one after the other.

One start of the processes is dearer than all that the tests have them do.
"""

import sys
from pathlib import Path

from tracewheel.learner.backends.worker import work

if __name__ == "__main__":
    sys.exit(max(work(Path(job)) for job in sys.argv[1:]))
