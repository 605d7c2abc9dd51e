"""Names of the files in a folder that `ingest` wrote."""

from tracewheel.core.out_folder import Writes

TRACES_FOLDER, QUARANTINE_FILE, REPORT_FILE = "traces.parquet", "quarantine.jsonl", "report.json"
OUTCOMES_FILE = "outcomes.jsonl"  # what was said of traces later; none where nothing was
LATE, JUDGE = "late_outcomes", "judge"  # where a trace's `info` has what was said later, and there a judge's opinion
PLACES_FOLDER = "places.parquet"  # which bytes of the logs each trace is from
STATE_FILE, INDEXES = "state.json", ("contents", "ids", "span_traces")
READ_FILE, STATE_FOLDER = "read.json", "state"  # what of the logs an incremental ingest has read, and what the next one needs
INGESTED = Writes(
    (TRACES_FOLDER, QUARANTINE_FILE, REPORT_FILE),
    (
        f"{TRACES_FOLDER}/part-*.parquet",
        f"{PLACES_FOLDER}/part-*.parquet",
        f"{PLACES_FOLDER}/",  # empty, where no trace was kept
        OUTCOMES_FILE,
        READ_FILE,
        f"{STATE_FOLDER}/*",
        STATE_FILE,  # of earlier versions, with the hashes
        *(f"{name}.hashes" for name in INDEXES),
    ),
)


def part_name(number: int) -> str:
    """The file name of a part in `traces.parquet`."""
    return f"part-{number:05d}.parquet"
