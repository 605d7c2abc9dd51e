"""The film strip of an episode: only pictures of the environment's own folder, by digest."""

import base64

import pytest

from tracewheel.dashboard.pictures import MOST_BYTES, film
from tracewheel.dashboard.view import environment

DIGEST = "0123456789abcdef" * 2
PICTURE = {"picture": DIGEST, "size": [500, 320]}


@pytest.fixture
def settings(tmp_path):
    (tmp_path / f"{DIGEST}.webp").write_bytes(b"RIFFpicture")
    return {"environment": {"args": {"screenshots": str(tmp_path)}}}


def test_each_picture_is_shown_with_the_place_that_was_acted_on(settings):
    strip = film({"pictures": [{**PICTURE, "at": [40, 50]}, PICTURE]}, settings)
    data = base64.b64encode(b"RIFFpicture").decode()
    assert strip == [{"data": data, "size": (500, 320), "at": (40, 50)}, {"data": data, "size": (500, 320), "at": None}]
    shown = _shown(strip)
    assert shown.count("<svg") == 2 and shown.count(data) == 2 and shown.count("<circle") == 1
    assert 'cx="40" cy="50"' in shown and 'viewBox="0 0 500 320"' in shown


def _shown(strip):
    return str(environment().get_template("episode_parts.html").module.film_strip(strip))


@pytest.mark.parametrize(
    "listed",
    [
        {**PICTURE, "picture": "../hidden"},
        {**PICTURE, "picture": DIGEST[:-1] + "0"},  # not there
        {**PICTURE, "size": [1]},
        {**PICTURE, "size": ['1" onload="x', 2]},
        {**PICTURE, "at": [1, None]},
        {"picture": DIGEST},
        "x",
    ],
)
def test_what_is_no_picture_is_left_out(settings, listed):
    assert len(film({"pictures": [listed, PICTURE]}, settings)) == 1


def test_without_pictures_or_their_folder_there_is_no_strip(settings, tmp_path):
    assert film({"pictures": {}}, settings) == film(None, settings) == film({"pictures": [PICTURE]}, {}) == []
    (tmp_path / f"{DIGEST}.webp").write_bytes(b"0" * (MOST_BYTES + 1))
    assert film({"pictures": [PICTURE]}, settings) == []
