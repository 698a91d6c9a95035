"""The curator of a federated fit: queries to sites, and the sums of their answers.

What carries the messages is a *channel*, an object with

- ``sites() -> list of str``: the names of the sites, and of the servers, that are connected;
- ``exchange(kind, {site: content}, timeout) -> {site: content}``: the replies that came within
  `timeout` seconds; see `skpmtl.federated.answering` for the kinds.

`skpmtl.federated.controller` has the channel of an engine; tests have one within a process.
"""

from dataclasses import replace
from pathlib import Path

from .._version import __version__
from ..exchange.files import save_billboard
from ..exchange.journal import Journal, write_file
from ..exchange.plan import ONE_PROCESS
from ..exchange.protocol import run
from .asking import NoAnswer, Sites, TooFew
from .ledger import private_folder
from .runlog import RunLog, missing, read_log
from .served_sites import ServedSites
from .transcript import recorded

__all__ = ["NoAnswer", "TooFew", "curate"]

HELD = "which tasks have rows is public: every site names those that it has rows of"
BACKUPS = (
    "the curator's journal is never restored to an earlier state, nor the books of a site or a "
    "server to a state before an answer that the curator did not receive: that goes undetected, "
    "and a query would be answered again with new noise (older books than the curator has recorded "
    "are refused)"
)


def curate(channel, study, folder):
    """Run a study, or go on with one that was cut off. -> billboard

    Parameters
    ----------
    channel : object
        Carries the messages, see above.
    study : Study
    folder : path-like
        Of the curator: its journal and the log of the run, which are secret, and billboard.npz and
        report.json, which are public.

    Raises
    ------
    NoAnswer
        When too few sites answer: the same call goes on from the journal, once they are back.
    ValueError
        For sites whose tasks do not go together, and for a damaged folder.
    """
    folder = private_folder(Path(folder))
    log = RunLog(folder)
    with Journal(folder / "journal", {"study": study.text}) as journal:
        log.write("start", study=study.name, digest=study.digest, skpmtl=__version__)
        try:
            billboard = _curate(channel, study, folder, journal, log)
        except Exception as error:
            log.write("end", error=f"{type(error).__name__}: {error}"[:500])
            raise
        log.write("end", error=None, epsilon=billboard.report.epsilon)
    return billboard


def _curate(channel, study, folder, journal, log):
    est = study.build()
    source = est._source()
    sites = (Sites if study.servers is None else ServedSites)(channel, study, journal, log)
    sites.enrol()
    curator = est._queries(sites.population, source)
    if sites.informs:
        curator = recorded(curator, sites.replies, sites.shown)
    billboard = run(curator, sites, source, journal)
    billboard.report = describe(billboard, study, read_log(folder))
    save_billboard(study.published(billboard), folder / "billboard.npz")
    write_file(folder / "report.json", (billboard.report.to_json(indent=1) + "\n").encode())
    sites.publish(billboard)
    return billboard


def describe(billboard, study, events=()):
    """The report of a billboard with what the transport, and the log of the run, add to it."""
    est, population = study.build(), study.population()
    transport = est._transport(population)
    notes = dict(billboard.report.notes)
    if study.servers is not None:
        names = ", ".join(sorted(study.servers))
        text = (
            f"NVFlare; servers of their own ({names}): sites seal what they send for the keys of "
            "these, so that the curator and the network carry what they cannot "
            "read, and see sums with the noise of all servers only. Nobody but one server has to "
            "be trusted, whichever it is, and every site with its own bound"
        )
        notes["servers"] = notes["servers"].replace(ONE_PROCESS, "")
    elif transport is not None:
        text = f"NVFlare; {transport}"
    else:
        text = (
            "NVFlare, trusted curator: it sees the clipped contribution "
            "of every single task, from which, over the rounds, personal models can be rebuilt; "
            "so can the operator of the server"
        )
    notes["transport"] = text
    asked, lost = missing(events, public=True)
    if asked and billboard.report.sampling.startswith("all tasks"):
        notes["contributions"] = (
            f"{lost} of {asked} were missing (late, refused, or of tasks without rows) and counted "
            "as zero"
        )
    assumptions = [*billboard.report.assumptions, HELD, BACKUPS]
    return replace(billboard.report, assumptions=assumptions, notes=notes)
