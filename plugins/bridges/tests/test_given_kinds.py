"""What reaches a program, a path or an address is made for the user alone."""

from tests.tracewheel.core.test_given_kinds import check_refused
from tracewheel.core.kinds import kind_text


def test_no_environment_that_only_data_names():
    check_refused(kind_text("openenv", {"python": "sh", "environment": "planted:Kind"}))
    check_refused(kind_text("nemo_gym", {"url": "http://127.0.0.1:9"}))
