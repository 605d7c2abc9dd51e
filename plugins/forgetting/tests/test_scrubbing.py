"""A log that is cleaned while a server writes it loses no conversation, and keeps none of a forgotten user."""

import json
import subprocess
import sys
import time
from pathlib import Path

from tracewheel_forgetting.scrubbing import Scrubber, drop_lines

COUNT = 300
SERVER = f"""
import sys, time
from pathlib import Path
from tracewheel.gateway.conversation_log import ConversationLog
log = ConversationLog(Path(sys.argv[1]))
for number in range({COUNT}):
    log.write({{"id": f"c-{{number}}", "user": "anna" if number % 2 else "berta", "messages": [{{"content": "x"}}]}})
    time.sleep(0.003)  # so that the log is cleaned more than once meanwhile, on a busy machine too
"""


def test_what_a_live_server_writes_is_not_lost(tmp_path):
    server = subprocess.Popen([sys.executable, "-c", SERVER, str(tmp_path)])
    scrubber, cleaned = Scrubber(["berta"]), 0
    while server.poll() is None:
        for path in sorted(tmp_path.glob("[!.]*.jsonl")):
            scrubber.scrub(path)
            cleaned += 1
        time.sleep(0.01)
    assert server.wait() == 0 and cleaned > 1
    for path in tmp_path.glob("*.jsonl"):
        scrubber.scrub(path)
    said = [json.loads(line) for path in tmp_path.glob("*.jsonl") for line in path.read_text().splitlines()]
    assert sorted(record["id"] for record in said) == sorted(f"c-{number}" for number in range(1, COUNT, 2))
    assert not list(tmp_path.glob(".*"))


def test_a_conversation_goes_whole_and_the_rest_stays_as_it_is(tmp_path):
    file = tmp_path / "log.jsonl"
    others = b'{"user": "anna",  "messages": []}\n'
    theirs = [
        b'{"user": "berta", "messages": [{"content": "my words"}]}\n',
        b'{"conversation": "c-berta", "shadow": {"content": "my words"}, "user": "berta"}\n',
        b'{"user": "berta", "messages": [{"content": "torn\n',
    ]
    file.write_bytes(b"".join([theirs[0], others, *theirs[1:], b'{"note": "of berta"}\n']))
    file.chmod(0o600)
    assert Scrubber(["berta"]).scrub(file)
    assert file.read_bytes() == others + b'{"note": "of (forgotten)"}\n' and file.stat().st_mode & 0o777 == 0o600
    whole = tmp_path / "export.json"
    whole.write_text(json.dumps([json.loads(theirs[0]), {"user": "anna", "messages": []}]))
    assert Scrubber(["berta"]).scrub(whole)
    assert json.loads(whole.read_text()) == [{"user": "anna", "messages": []}]


def test_torn_lines_leave_a_log_too(tmp_path):
    log: Path = tmp_path / "log.jsonl"
    log.write_bytes(b'{"user": "anna"}\n{"user": "berta", "mess')
    log.chmod(0o600)
    assert drop_lines(log, ["berta"]) == 1
    assert log.read_bytes() == b'{"user": "anna"}\n' and log.stat().st_mode & 0o777 == 0o600
