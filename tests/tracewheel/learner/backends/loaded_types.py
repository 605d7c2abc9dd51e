"""Under torchrun: load the learner of the job on the command line, and write how many weights of each type a process holds."""

import sys
from collections import Counter
from pathlib import Path

from tracewheel.config import UpdateSections
from tracewheel.core.files import read_json, write_json
from tracewheel.learner.backends import processes
from tracewheel.learner.learner import Learner
from tracewheel.learner.update_files import UpdateFiles

if __name__ == "__main__":
    job = Path(sys.argv[1])
    task = read_json(job)
    files = UpdateFiles.from_json(task["files"])
    learner = Learner(UpdateSections.model_validate(task["config"]), files.state, files.reference)
    held: Counter[str] = Counter()
    for name, weight in learner.models.model.named_parameters():
        part = getattr(weight, "ds_tensor", weight)
        held[f"{'adapter' if 'lora_' in name else 'base'} {str(part.dtype).removeprefix('torch.')}"] += part.numel()
    write_json(job.with_name(f"types-{processes.rank()}.json"), held)
