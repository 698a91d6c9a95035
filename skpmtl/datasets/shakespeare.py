"""Shakespeare's plays, with one task per speaker."""

import os
import xml.etree.ElementTree as ET
import zipfile
import zlib
from os import PathLike
from pathlib import Path

import numpy as np
from sklearn.utils import Bunch

from .download import fetched

# The alphabet of LEAF's Shakespeare, in its order.
CHARACTERS = "\n !\"&'(),-.0123456789:;>?ABCDEFGHIJKLMNOPQRSTUVWXYZ[]abcdefghijklmnopqrstuvwxyz}"
PLAYS_FILE = "shakespeare.zip"
PLAYS_URL = (
    "https://raw.githubusercontent.com/nltk/nltk_data/"
    "5db857e6f7df11eabb5e5665836db9ec8df07e28/packages/corpora/shakespeare.zip"
)
PLAYS_SHA256 = "f1251d8c254710363254ba29c9dc0888d5cb13d5ac736ebc6fb14380f447cfc3"
_PLAYS_DESCR = """\
Plays by Shakespeare, speaker by speaker
----------------------------------------
Eight plays: Antony and Cleopatra, A Midsummer Night's Dream, Hamlet, Julius Caesar, Macbeth, The
Merchant of Venice, Othello, Romeo and Juliet. One task is one speaker of one play: tell the next
character of what he or she says from those before it.

:Speakers: 297, of whom 248 say a hundred characters or more
:Characters: 61 different ones and the end of a line, 931 thousand in all

A speaker's lines come in the order of the play, one below the other. Stage directions, and the 21
speeches of several speakers at once, are left out.

The text is in the public domain (Moby Lexical Tools, 1992; markup by Jon Bosak, styles by Ajay
Juneja) and may be copied and distributed freely; the Natural Language Toolkit distributes it as its
corpus "shakespeare".
"""


def load_shakespeare(path: str | PathLike[str], *, length: int = 80, step: int = 1) -> Bunch:
    """Read plays as rows from which the next character of a speaker is predicted.

    A row is `length` characters in a row of one speaker, its target the one that follows, as in
    LEAF's Shakespeare. What is public is the list of characters; nothing is learned from texts.

    Parameters
    ----------
    path : str or path-like
        The corpus "shakespeare" of the Natural Language Toolkit: ``shakespeare.zip``, or a folder
        with its XML. Other plays in the same markup will do (PLAY, SPEECH, SPEAKER, LINE).
    length : int, default=80
        Characters of a row.
    step : int, default=1
        Characters from the beginning of a row to that of the next one.

    Returns
    -------
    plays : :class:`~sklearn.utils.Bunch`
        data : ndarray of shape (n_samples, length), uint8
            Positions of characters in ``skpmtl.datasets.CHARACTERS``, speaker after speaker; all
            others have the position ``len(CHARACTERS)``.
        target : ndarray of shape (n_samples,), uint8
            Position of the next one.
        task : ndarray of shape (n_samples,), str
            Speaker of every row: the play and the name.
        tasks : ndarray of shape (n_tasks,), str
            Speakers with rows, which are those with more than `length` characters.
        plays : dict
            Play of each of them, by speaker: a public mapping for ``clusters=``.
        DESCR : str
            What is in the corpus, and its terms.
        filenames : list of str
            What was read.

    Raises
    ------
    FileNotFoundError
        If there is no such file or folder, or no XML in it.
    ValueError
        If a file is no play in this markup or no zip, no speaker has enough characters, or
        `length` or `step` are none.
    """
    if length < 1 or step < 1:
        raise ValueError(f"length={length!r} and step={step!r} must be 1 or more.")
    data, target, sizes, names, plays, files = [], [], [], [], {}, []
    for file, content in _xml_files(Path(path)):
        files.append(file)
        play, speakers = _spoken(file, content)
        for speaker, lines in speakers.items():
            text = _positions("\n".join(lines) + "\n")
            if len(text) <= length:
                continue
            windows = np.lib.stride_tricks.sliding_window_view(text, length + 1)[::step]
            data.append(windows[:, :length])
            target.append(windows[:, length])
            names.append(f"{play}: {speaker}")
            sizes.append(len(windows))
            plays[names[-1]] = play
    if not names:
        raise ValueError(f"{os.fspath(path)!r} has no speaker of more than {length} characters.")
    if len(plays) < len(names):
        raise ValueError(f"{os.fspath(path)!r} has the same play in two files.")
    names = np.array(names)
    return Bunch(
        data=np.concatenate(data),
        target=np.concatenate(target),
        task=np.repeat(names, sizes),
        tasks=names,
        plays=plays,
        DESCR=_PLAYS_DESCR,
        filenames=files,
    )


def fetch_shakespeare(
    data_home: str | PathLike[str] | None = None,
    download_if_missing: bool = True,
    *,
    length=80,
    step=1,
) -> Bunch:
    """Load Shakespeare's plays from the corpus of the Natural Language Toolkit, downloaded once.

    The file (475 kB, public domain) is checked against its known SHA-256 and kept.

    Parameters
    ----------
    data_home : str or path-like, default=None
        Folder of the copy; None is scikit-learn's data home (``~/scikit_learn_data``).
    download_if_missing : bool, default=True
        False raises an OSError rather than use the network.
    length, step
        As in :func:`load_shakespeare`.

    Returns
    -------
    plays : :class:`~sklearn.utils.Bunch`
        As :func:`load_shakespeare`.

    Raises
    ------
    OSError
        If the file is missing and may not be, or cannot be, downloaded, or the download
        does not have the expected checksum.
    """
    otherwise = "load_shakespeare(path) reads the corpus that nltk.download('shakespeare') keeps"
    kept = fetched(PLAYS_URL, PLAYS_FILE, PLAYS_SHA256, data_home, download_if_missing, otherwise)
    return load_shakespeare(kept, length=length, step=step)


def _positions(text):
    """Position of every character of a text in the list, uint8; of others, the next one."""
    places = np.full(128, len(CHARACTERS), np.uint8)
    places[[ord(character) for character in CHARACTERS]] = np.arange(len(CHARACTERS))
    codes = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), dtype="<u4")
    return places[np.minimum(codes, 127)]  # 127 is not in the list


def _xml_files(path):
    """Names and contents of all ``*.xml`` of a folder or zip, in the order of their names."""
    if path.is_dir():
        found = [(os.fspath(file), file.read_bytes()) for file in sorted(path.rglob("*.xml"))]
    elif path.is_file():
        try:
            with zipfile.ZipFile(path) as archive:
                inside = sorted(name for name in archive.namelist() if name.endswith(".xml"))
                found = [(f"{path}/{name}", archive.read(name)) for name in inside]
        except (zipfile.BadZipFile, zlib.error, EOFError, RuntimeError) as error:
            raise ValueError(f"{os.fspath(path)!r} is not a readable zip: {error}") from error
    else:
        raise FileNotFoundError(f"{os.fspath(path)!r} is neither a file nor a folder.")
    if not found:
        raise FileNotFoundError(f"{os.fspath(path)!r} has no *.xml.")
    return found


def _spoken(file, content):
    """Title of a play, and lines by speaker in their order."""
    try:
        play = ET.fromstring(content)
    except (ET.ParseError, LookupError, ValueError) as error:
        raise ValueError(f"{file} is not XML: {error}") from error
    title = " ".join((play.findtext("TITLE") or "").split())
    if play.tag != "PLAY" or not title:
        raise ValueError(f"{file} is no play: it needs a PLAY with a TITLE.")
    speakers = {}
    for speech in play.iter("SPEECH"):
        who = [" ".join((element.text or "").split()) for element in speech.findall("SPEAKER")]
        if len(who) != 1 or not who[0]:
            continue  # several at once are no one's rows
        for line in speech.iter("LINE"):
            directions = [element.tail or "" for element in line]
            text = " ".join("".join([line.text or "", *directions]).split())
            if text:
                speakers.setdefault(who[0], []).append(text)
    return title, speakers
