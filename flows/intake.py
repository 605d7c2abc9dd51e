"""What a run takes in: its logs, read and looked at, before anything is made of them."""

from __future__ import annotations

from tasks.engine.reading import accept
from tasks.engine.run import Run
from tasks.stages.ingest import ingested
from tracewheel.core.errors import DoubtfulData
from tracewheel.core.store import Entry
from tracewheel.operations.batches import held_batches
from tracewheel.operations.intake_record import INTAKE_FILE, intake_of, sentences
from tracewheel.traces.ingested_folder import QUARANTINE_FILE
from tracewheel.traces.quarantine import frequent_reasons, shortfall


def take_in(run: Run) -> Entry:
    """The traces that a run learns from.

    Raises:
        DoubtfulData: most records are in quarantine.
    """
    traces = ingested(run)
    look_at_quarantine(run, traces)
    accept(run, traces)
    for sentence in note_intake(run, traces):
        run.reporter.say(sentence)
    return traces


def note_intake(run: Run, traces: Entry) -> list[str]:
    """Write down what the run takes in and leaves out; returns it in sentences, none where all is well."""
    reasons = frequent_reasons(traces.result, traces.path / QUARANTINE_FILE)
    examples = {why.reason: f"{why.file}:{why.line}" for why in reasons}
    intake = intake_of(traces.result, examples, held_batches(run.config.work_dir))
    run.record.write(INTAKE_FILE, intake)
    return sentences(intake)


def look_at_quarantine(run: Run, traces: Entry) -> None:
    """Check that enough of the logs could be read, before anything is trained on the rest.

    Raises:
        DoubtfulData: most records are in quarantine, and `ingest.allow_quarantine` is not set.
    """
    if run.record.summary or run.config.ingest.allow_quarantine:
        return
    if short := shortfall(traces.result):
        file = traces.path / QUARANTINE_FILE
        reasons = [
            f"{why.count} {why.reason} (as {why.file}:{why.line}: {why.detail:.120}). {why.advice}"
            for why in frequent_reasons(traces.result, file, bool(run.config.ingest.readers))
        ]
        hint = f"{file} has them; ingest.allow_quarantine=true trains on the rest"
        raise DoubtfulData("\n  ".join([f"{short}:", *reasons, hint]))
