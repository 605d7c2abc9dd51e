"""Under torchrun: run the updates described by the files on the command line, in turn.

Starting the processes takes longer than all updates of a test, so one start runs several.
"""

import sys
from pathlib import Path

from tracewheel.core.files import read_json
from tracewheel.learner.backends.worker import carry_out

if __name__ == "__main__":
    for job in sys.argv[1:]:
        carry_out(read_json(Path(job)))
