"""What the results of a trace and of a task depend on besides themselves, as one hash."""

from __future__ import annotations

from pathlib import Path

from tracewheel.config import CurateSections
from tracewheel.core.fingerprint import (
    CURATION_PACKAGES,
    NUMERIC_PACKAGES,
    code_version,
    digest_file,
    package_versions,
)
from tracewheel.core.types import content_hash
from tracewheel.scoring.world_code import world_code

CODE = "tracewheel.curation.replayed_traces"


def depends_on(config: CurateSections) -> str:
    """Hash of the settings that replays, probes, sketches and overlaps read, their code, and the packages it uses.

    Of the user's own environment it covers the module and what that imports, except installed packages. It does not cover
    files that an environment reads.
    """
    world = world_code(config.environment.spec, config.environment.verifiers)
    duplicates, benchmarks = config.curation.duplicates, config.curation.decontamination
    return content_hash(
        {
            "environment": config.environment.spec,
            "sketches": duplicates.near,
            "benchmarks": [
                benchmarks.model_dump(mode="json", exclude={"benchmarks"}),
                *([Path(path).name, digest_file(Path(path))] for path in benchmarks.benchmarks if Path(path).is_file()),
            ],
            "code": code_version(CODE, *world.modules, plugins=world.plugins),
            "packages": package_versions(NUMERIC_PACKAGES + CURATION_PACKAGES),
        }
    )
