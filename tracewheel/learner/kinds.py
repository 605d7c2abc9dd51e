"""Where the learner's kinds are: names alone, so that a command that works out keys imports no PyTorch."""

# The function of each kind of advantage. `ComparingAdvantageConfig` says what those take that compare trajectories.
ADVANTAGES = {
    "batch": "tracewheel.learner.advantages.group:batch_advantages",
    "domain": "tracewheel.learner.advantages.domain:domain_advantages",
    "gae": "tracewheel.learner.advantages.gae:gae",
    "greedy_baseline": "tracewheel.learner.advantages.group:greedy_baseline_advantages",
    "group": "tracewheel.learner.advantages.group:group_advantages",
    "kl_to_go": "tracewheel.learner.advantages.group:kl_to_go_advantages",  # with `kl.credit: to_go`
    "leave_one_out": "tracewheel.learner.advantages.group:leave_one_out_advantages",
    "teacher": "tracewheel.learner.distillation:teacher_logprobs",
}

# The function of each kind of surrogate, of which each takes what it needs of `SurrogateTokens`.
SURROGATES = {
    "cispo": "tracewheel.learner.losses.cispo:cispo",
    "clip": "tracewheel.learner.losses.clip:clip",
    "gspo": "tracewheel.learner.losses.gspo:gspo",
    "likelihood": "tracewheel.learner.losses.likelihood:likelihood",
    "sapo": "tracewheel.learner.losses.sapo:sapo",
}

DEEPSPEED = "tracewheel.learner.backends.deepspeed_backend"  # of a section whose `backend.kind` is 'deepspeed'
