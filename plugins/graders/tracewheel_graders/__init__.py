"""Models as judges, and the audit of graders."""

from tracewheel_graders.judges.asking import JudgeFailure as JudgeFailure
from tracewheel_graders.judges.asking import ask_about as ask_about
from tracewheel_graders.judges.criteria import JudgeSettings as JudgeSettings
