"""The reader that README shows reads what it says."""

import re
from pathlib import Path

from tracewheel import Place

README = Path(__file__).parents[1] / "README.md"


def test_the_reader_of_the_readme_reads():
    shown: dict = {}
    (source,) = re.findall(r"```python\n(.*?)```", README.read_text(), re.DOTALL)
    exec(source, shown)
    (reader,) = shown["READERS"]
    turns = [
        {"who": "guest", "text": "Weather in Rome?"},
        {"tool": "weather", "input": {"city": "Rome"}, "output": "sunny"},
        {"who": "bot", "text": "It is sunny."},
    ]
    record = {"id": 7, "dialogue": turns, "score": 1}
    assert reader.recognises(record) and not reader.recognises([record])
    trace = reader.read(record, Place("log", 1))
    assert [message["role"] for message in trace.messages] == ["user", "assistant", "tool", "assistant"]
    assert (trace.id, trace.outcome, trace.format) == ("7", 1.0, "desk")
