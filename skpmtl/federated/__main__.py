"""Helpers of a federation: ``python -m skpmtl.federated --help``."""

import argparse
import logging
import signal
import sys
import warnings
from pathlib import Path

from .refusals import Refusal
from .study import Study


def main(arguments=None):
    """Command line. -> exit status"""
    parser = argparse.ArgumentParser(prog="python -m skpmtl.federated", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    kit = commands.add_parser("kit", help="make the folders of a curator and the sites")
    kit.add_argument("study", type=Path, nargs="+", help="public settings, .toml or .json")
    kit.add_argument("--sites", nargs="+", required=True, metavar="NAME")
    kit.add_argument("--address", required=True, help="of the curator's machine: NAME[:PORT]")
    kit.add_argument("--folder", type=Path, default=Path("kit"), help="to make (default: kit)")
    kit.add_argument("--task", default="task", help="column of the sites' rows (default: task)")
    kit.add_argument("--target", default="y", help="column of the sites' rows (default: y)")
    kit.add_argument(
        "--epsilon", type=float, help="one budget for all studies (default: what these need)"
    )
    key = commands.add_parser("key", help="make the key of a server; prints its public half")
    key.add_argument("path", type=Path, help="file to make: server.key in its folder")
    check = commands.add_parser("check", help="look at a folder of a kit, or at a study")
    check.add_argument("path", type=Path)
    check.add_argument("--rows", type=Path, help="in place of those that site.toml names")
    site = commands.add_parser("site", help="answer, until all studies of a site are finished")
    site.add_argument("folder", type=Path)
    site.add_argument("--rows", type=Path, help="in place of those that site.toml names")
    curator = commands.add_parser("curator", help="run all studies of a curator to their end")
    curator.add_argument("folder", type=Path)
    status = commands.add_parser(
        "status", help="how a run stands; exit status 0: finished, 1: failed, 3: neither"
    )
    status.add_argument("folder", type=Path, help="of a curator, or of one of its studies")
    demo = commands.add_parser("demo", help="a curator and three sites on this machine, to try")
    demo.add_argument("--rows", type=Path, help="CSV file with all tasks (default: School data)")
    demo.add_argument("--task", default="task", help="its column of tasks (default: task)")
    demo.add_argument("--target", default="y", help="its column of targets (default: y)")
    demo.add_argument("--epsilon", type=float, default=1.0, help="budget (default: 1)")
    demo.add_argument("--rounds", type=int, default=5, help="number of rounds (default: 5)")
    demo.add_argument("--folder", type=Path, help="to make (default: a temporary one)")
    studies = commands.add_parser(
        "studies", help="what a site, or a curator, has spent on each study, and what is left"
    )
    studies.add_argument("folder", type=Path, help="of a site or a curator")
    given = parser.parse_args(arguments)
    logging.basicConfig(format="%(asctime)s %(levelname)s %(message)s", level=logging.WARNING)
    logging.getLogger("skpmtl").setLevel(logging.INFO)
    try:
        return globals()[f"_{given.command}"](given)
    except (Refusal, ValueError, OSError, ImportError, RuntimeError) as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
        return 1


def _kit(given):
    from .provisioning import make_kit

    servers = make_kit(
        given.study,
        given.sites,
        given.address,
        given.folder,
        given.task,
        given.target,
        given.epsilon,
    )
    print(f"{given.folder}/curator   stays here: {given.folder}/curator/start")
    for name in given.sites:
        print(f"{given.folder}/{name}   goes to that site, where nobody else can read it: ./start")
    for name in servers:
        print(f"{given.folder}/{name}   goes to that server, who adds its server.key: ./start")
    return 0


def _key(given):
    from .secret_shares import new_share_key

    if given.path.exists():
        raise ValueError(f"{given.path} is there already: what was sealed for it would be lost.")
    print(new_share_key(given.path))
    return 0


def _check(given):
    from .check import check_curator, check_site, describe_study

    path = given.path
    if (path / "curator.toml").exists():
        faults = check_curator(path)
    elif path.name == "site.toml" or (path / "site.toml").exists():
        faults = check_site(path if path.is_file() else path / "site.toml", given.rows)
    else:
        describe_study(Study.load(path))
        return 0
    print(f"{faults} faults")
    return int(faults > 0)


def _site(given):
    from .site_config import SiteConfig
    from .site_process import serve, stop_on_signals

    config = SiteConfig(given.folder / "site.toml", given.rows)
    for part in config.parts:  # what is wrong here is said before anything is answered
        study = Study.load(part.file)
        try:
            site = config.open(part, study)
        except Refusal as refusal:  # also sent to the curator; it can be mended meanwhile
            logging.getLogger("skpmtl").error("%s: refused: %s", study.name, refusal)
            continue
        what = f"server {site.name}" if part.server else f"{len(site.positions)} tasks"
        print(f"{study.name}: {what}, digest {study.digest}", flush=True)
    serve(config, stop_on_signals())
    return 0


def _curator(given):
    from .supervisor import Supervisor

    supervisor = Supervisor(given.folder)

    def stop(*_):
        supervisor.stop = True

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, stop)
    return supervisor.run()


def _demo(given):
    from .demo import run_demo

    return run_demo(given.folder, given.rows, given.task, given.target, given.epsilon, given.rounds)


def _studies(given):
    from .studies import print_studies

    print_studies(given.folder)
    return 0


def _status(given):
    from .runlog import FAILED, read_log, standing, trouble_lines
    from .supervisor import read_curator

    folders, around = [given.folder], given.folder.parent
    if (given.folder / "curator.toml").exists():
        files, around = read_curator(given.folder).studies, given.folder
        folders = [given.folder / Study.load(given.folder / file).name for file in files]
    elif not (given.folder / "run.jsonl").exists():
        raise ValueError(
            f"{given.folder} is no folder of a curator (which has curator.toml), and of no study "
            "that was begun (which has run.jsonl). The log of a site says how it stands."
        )
    found = [standing(folder) for folder in folders]
    for folder, (_, text) in zip(folders, found, strict=True):
        print(f"{folder.name}: {text}")
        for wrong in trouble_lines(read_log(folder)):
            print(f"  {wrong}")
    if wrong := trouble_lines(read_log(around)):
        print("connections:", *wrong, sep="\n  ")
    codes = {code for code, _ in found}
    return FAILED if FAILED in codes else max(codes)


if __name__ == "__main__":
    warnings.simplefilter("default", UserWarning)
    sys.exit(main())
