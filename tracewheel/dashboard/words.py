"""The words of the dashboard: each metric with its unit and what it says, for the page of help."""

from __future__ import annotations

from typing import NamedTuple


class Word(NamedTuple):
    """A word, its unit, and what it says."""

    name: str
    unit: str
    says: str


METRICS = (
    Word(
        "success",
        "share of tasks, %",
        "Episodes whose verifier gives the full mark. Greedy: one episode a task, the likeliest token "
        "each time. Sampled: the mean of several drawn at the evaluation's temperature.",
    ),
    Word(
        "interval",
        "%",
        "95% unless it says otherwise: Wilson's for greedy rates, a bootstrap over tasks for sampled "
        "ones, a paired test for differences.",
    ),
    Word(
        "gain",
        "percentage points",
        "Success after RL minus that of the baseline on the same held-out tasks, as the gate weighs "
        "greedy and sampled success. Its interval is at the gate's own level.",
    ),
    Word("gained, lost", "tasks", "Held-out tasks whose greedy episode has another outcome than the baseline's."),
    Word(
        "stands out",
        "",
        "The difference of a family is unlikely to be chance even though all families were looked at (Holm's test).",
    ),
    Word("power", "tasks", "How many held-out tasks the gate needs to see a gain of a size in four of five cases."),
    Word("A/A floor", "percentage points", "The baseline against itself with another seed: what differs is noise."),
    Word("pass@k", "%", "Chance that one of k sampled episodes of a task is solved."),
    Word("harder tier", "", "Tasks harder than any in training. They choose nothing."),
    Word("reward", "0 to 1, mostly", "Mean total score of the training episodes, with the rubric's bonuses and costs."),
    Word("KL", "nats a token", "How far the policy has moved from the warm start (K3 estimate)."),
    Word("entropy", "nats a token", "How open the policy's next token is; near 0 it always does the same."),
    Word("zero-variance share", "share of groups", "Groups whose episodes all have the same reward: they teach nothing."),
    Word("diversity", "0 to 1", "How different the runs of calls within a group are; 0 if all are alike."),
    Word("clipped share", "share of tokens", "Tokens whose ratio to the behaviour policy is at the clip."),
    Word("truncated, unscored", "share of episodes", "Cut off by a limit; without a score. A missing score is not 0."),
    Word(
        "a point costs",
        "seconds, tokens or money",
        "All stages' cost, reused results included, for each percentage point that a promoted challenger gained.",
    ),
    Word("doctor", "", "Checks of a run's records for known failures: severe, warning, healthy, or not checked."),
    Word(
        "parts from a success",
        "step",
        "The first call at which a failed episode differs from the success of its group that it follows longest.",
    ),
)
STATES = (
    Word("running", "", "A process is at it; its page changes by itself."),
    Word("promoted", "", "The gate let the challenger pass: it is the champion, or was."),
    Word("refused", "", "The gate saw no certain gain, or a family fell."),
    Word(
        "crashed, stopped, failed",
        "",
        "It ended before its end: without a word, on request, by an error. `tracewheel retrain` resumes it.",
    ),
    Word("skipped", "", "A scheduled run found too little to learn from."),
    Word("complete, incomplete", "", "What earlier versions left, which wrote no state."),
)
KEYS = (
    ("j, k", "next and previous row"),
    ("Enter", "follow the row's link"),
    ("[ and ]", "previous and next page"),
    ("/", "to the search field"),
    (
        "g, then a key",
        "r runs, s search, c compare, y whose data, h help; of a run: o overview, t tasks, u groups, e "
        "episodes, a rollouts, d traces, l lineage, v review",
    ),
    ("t", "light or dark"),
    ("Esc", "leave a field"),
    ("?", "this page"),
)
ADDRESSES = (
    ("/?q=…&state=…&doctor=…&since=…", "runs that pass filters"),
    ("/?hour=2.5&million=0.4&currency=EUR", "runs at other prices than those of their profiles"),
    ("/runs/FOLDER/RUN", "a run; below it tasks, groups, episodes, rollouts, traces, lineage, review"),
    ("/runs/FOLDER/RUN/rollouts?from=3&to=9", "rollouts of some iterations"),
    ("/runs/FOLDER/RUN/episodes/ENTRY/PART/TRAJECTORY", "a trajectory; /tokens after it shows its tokens"),
    ("/runs/FOLDER/RUN/pair?left=ENTRY/PART/ID&right=…", "two trajectories side by side"),
    ("/compare?run=FOLDER/RUN&run=…", "two runs or more, the first is the base"),
    ("/lineage?user=… (or session, trace)", "where somebody's data went"),
    ("/search?q=…", "full-text search over episodes"),
)
