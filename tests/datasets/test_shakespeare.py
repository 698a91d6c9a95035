"""Plays by speaker: read from small files of the same form, and fetched from a local copy."""

import hashlib
import zipfile

import numpy as np
import pytest

from skpmtl.datasets import CHARACTERS, fetch_shakespeare, load_shakespeare
from skpmtl.datasets import shakespeare as module

PLAY = """<?xml version="1.0"?>
<?xml-stylesheet type="text/css" href="shakes.css"?>
<PLAY><TITLE>{title}</TITLE>
<ACT><SCENE><STAGEDIR>Thunder</STAGEDIR>
<SPEECH><SPEAKER>First  Witch</SPEAKER>
<LINE>When shall we <STAGEDIR>aside</STAGEDIR>three
meet</LINE><LINE>again?</LINE></SPEECH>
<SPEECH><SPEAKER>ALL</SPEAKER><LINE>Ay</LINE></SPEECH>
<SPEECH><SPEAKER>ROSS</SPEAKER><SPEAKER>LENNOX</SPEAKER><LINE>Both of us say it</LINE></SPEECH>
<SPEECH><SPEAKER/><LINE>Nobody says what this line says</LINE></SPEECH>
<SPEECH><SPEAKER>ROSS</SPEAKER><LINE>God save the king!</LINE></SPEECH>
<SPEECH><SPEAKER>First Witch</SPEAKER><LINE><STAGEDIR>Exit</STAGEDIR></LINE>
<LINE>I come</LINE></SPEECH>
</SCENE></ACT></PLAY>
"""
SAID = {"First Witch": "When shall we three meet\nagain?\nI come\n", "ROSS": "God save the king!\n"}


@pytest.fixture
def corpus(tmp_path):
    path = tmp_path / "corpus.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("shakespeare/README", "not a play")
        archive.writestr("shakespeare/b.xml", PLAY.format(title="The Second"))
        archive.writestr("shakespeare/a.xml", PLAY.format(title="The  First"))
    return path


def spelled(rows):
    return ["".join(CHARACTERS[code] for code in row) for row in np.atleast_2d(rows)]


def test_rows_are_what_speakers_say(corpus, tmp_path):
    plays = load_shakespeare(corpus, length=5)
    names = [f"The {play}: {who}" for play in ("First", "Second") for who in SAID]
    assert plays.tasks.tolist() == names == list(dict.fromkeys(plays.task))
    assert plays.plays == {name: name.split(":")[0] for name in names}
    for name in names:
        text, mine = SAID[name.split(": ")[1]], plays.task == name
        rows = [text[i : i + 5] for i in range(len(text) - 5)]
        assert spelled(plays.data[mine]) == rows
        assert "".join(spelled(plays.target[mine])) == text[5:]
    assert plays.data.dtype == np.uint8 and plays.data.flags.c_contiguous
    some = load_shakespeare(corpus, length=5, step=3)
    first = plays.task == names[0]
    np.testing.assert_array_equal(some.data[some.task == names[0]], plays.data[first][::3])
    assert set(load_shakespeare(corpus, length=20).tasks) == {names[0], names[2]}
    with zipfile.ZipFile(corpus) as archive:
        archive.extractall(tmp_path / "folder")
    np.testing.assert_array_equal(load_shakespeare(tmp_path / "folder", length=5).data, plays.data)


def test_characters_outside_the_list_are_one_more():
    assert module._positions("\n}\u00e9\x7f").tolist() == [0, 79, 80, 80] and len(CHARACTERS) == 80


def test_what_is_no_play_is_named(tmp_path, corpus):
    with pytest.raises(FileNotFoundError, match="gone.* is neither"):
        load_shakespeare(tmp_path / "gone")
    folder = tmp_path / "folder"
    folder.mkdir()
    with pytest.raises(FileNotFoundError, match=r"has no \*\.xml"):
        load_shakespeare(folder)
    for content, message in (
        ("<PLAY><TITLE>x</TITLE>", "bad.xml is not XML"),
        ('<?xml version="1.0" encoding="none"?><PLAY/>', "bad.xml is not XML"),
        ("<POEM><TITLE>x</TITLE></POEM>", "bad.xml is no play"),
        ("<PLAY/>", "bad.xml is no play"),
        ("<PLAY><TITLE>x</TITLE></PLAY>", "no speaker of more than 80"),
    ):
        (folder / "bad.xml").write_text(content)
        with pytest.raises(ValueError, match=message):
            load_shakespeare(folder)
    for name in ("bad.xml", "twice.xml"):
        (folder / name).write_text(PLAY.format(title="x"))
    with pytest.raises(ValueError, match="the same play in two files"):
        load_shakespeare(folder, length=5)
    content = bytearray(corpus.read_bytes())
    for broken in (content[:200], content[:60] + b"?" * 40 + content[100:]):
        (tmp_path / "broken.zip").write_bytes(broken)
        with pytest.raises(ValueError, match="broken.zip.* is not a readable zip|is no"):
            load_shakespeare(tmp_path / "broken.zip")
    for options in ({"length": 0}, {"step": 0}):
        with pytest.raises(ValueError, match="must be 1 or more"):
            load_shakespeare(corpus, **options)


def test_fetched_plays_are_those_of_the_file(monkeypatch, tmp_path, corpus):
    """By what fetches School, too, which is tested there."""
    monkeypatch.setattr(module, "PLAYS_URL", corpus.as_uri())
    known = hashlib.sha256(corpus.read_bytes()).hexdigest()
    monkeypatch.setattr(module, "PLAYS_SHA256", known)
    plays, expected = fetch_shakespeare(tmp_path, length=5), load_shakespeare(corpus, length=5)
    np.testing.assert_array_equal(plays.data, expected.data)
