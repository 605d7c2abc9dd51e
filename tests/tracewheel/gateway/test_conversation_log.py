"""A server's log keeps nothing of a forgotten user."""

import json

from tracewheel.gateway.conversation_log import ConversationLog


def test_nothing_is_written_of_a_forgotten_user(tmp_path):
    log = ConversationLog(tmp_path, forgotten=lambda user, session: user == "berta")
    for user in ("anna", "berta"):
        log.write({"user": user, "session": None})
    log.close()
    (file,) = tmp_path.iterdir()
    assert [json.loads(line)["user"] for line in file.read_text().splitlines()] == ["anna"]
