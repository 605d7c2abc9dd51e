# The image of a run, for Docker and Kubernetes work pools (docs/operations.md). Logs, a real base and the work folder are mounted.
FROM python:3.11.13-slim-bookworm

WORKDIR /app

# The packages first, by their exact versions: a change of the code alone builds no layer of theirs again.
COPY pyproject.toml constraints.txt README.md ./
COPY tracewheel/__init__.py tracewheel/__init__.py
RUN python -m pip install --no-cache-dir --disable-pip-version-check -c constraints.txt .

COPY tracewheel tracewheel
COPY tasks tasks
COPY flows flows
COPY configs configs
COPY data/base data/base
COPY plugins/dialects plugins/dialects
COPY plugins/forgetting plugins/forgetting
COPY plugins/formats plugins/formats
COPY plugins/labels plugins/labels
COPY plugins/logs plugins/logs
COPY plugins/projects plugins/projects
COPY plugins/screening plugins/screening
RUN python -m pip install --no-cache-dir --disable-pip-version-check --no-deps --force-reinstall . ./plugins/dialects ./plugins/forgetting ./plugins/formats ./plugins/labels ./plugins/logs ./plugins/projects ./plugins/screening

COPY data/traces data/traces

# Any user may run it, as clusters that allow no root want. Everything a run writes goes to its work folder or to /tmp.
# Tokenizers are no tokens:
# hadolint ignore=DL3064
ENV HOME=/tmp \
    HF_HUB_OFFLINE=1 \
    OMP_WAIT_POLICY=PASSIVE \
    PREFECT_SERVER_ANALYTICS_ENABLED=false \
    DO_NOT_TRACK=1 \
    MLFLOW_DISABLE_TELEMETRY=true \
    TOKENIZERS_PARALLELISM=false
USER 1000:1000

CMD ["tracewheel", "--help"]
