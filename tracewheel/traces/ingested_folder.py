"""Names of the files in a folder that `ingest` wrote."""

TRACES_FOLDER, QUARANTINE_FILE, REPORT_FILE = "traces.parquet", "quarantine.jsonl", "report.json"
