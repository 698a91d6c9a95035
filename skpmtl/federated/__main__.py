"""Commands of a federation: ``python -m skpmtl.federated --help``."""

import argparse
import logging
import math
import sys
import warnings
from pathlib import Path

from .refusals import Refusal
from .study import Study


def main(arguments=None):
    """Command line. -> exit status"""
    parser = argparse.ArgumentParser(prog="python -m skpmtl.federated", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    site = commands.add_parser("site", help="set up the start-up kit of a site, or of a server")
    site.add_argument("kit", type=Path)
    site.add_argument("studies", type=Path, nargs="+", help="public settings, .toml or .json")
    source = site.add_mutually_exclusive_group(required=True)
    source.add_argument("--rows", type=Path, help="file of rows: .csv, .parquet or .npz")
    source.add_argument("--server", type=Path, help="key of one of the servers of the studies")
    site.add_argument("--task", default="task", help="column of the rows (default: task)")
    site.add_argument("--target", default="y", help="column of the rows (default: y)")
    for name in ("weight", "event", "entry"):
        site.add_argument(f"--{name}", help="column of the rows (default: none)")
    site.add_argument(
        "--epsilon", type=float, default=math.inf, help="cap for all studies (default: none)"
    )
    curator = commands.add_parser("curator", help="set up the start-up kit of the curator")
    curator.add_argument("kit", type=Path)
    key = commands.add_parser("key", help="make the key of a server; prints its public half")
    key.add_argument("path", type=Path, help="file to make")
    check = commands.add_parser("check", help="rows, cap and digest of a site, or of a study")
    check.add_argument("path", type=Path, help="kit of a site, or public settings")
    run = commands.add_parser("run", help="submit a study until it has finished")
    run.add_argument("study", type=Path, help="public settings, .toml or .json")
    run.add_argument("kit", type=Path, help="start-up kit of the user who submits")
    status = commands.add_parser(
        "status", help="of a run; exit status 0: finished, 1: failed, 3: neither"
    )
    status.add_argument("folder", type=Path, help="studies/NAME of the curator's kit")
    given = parser.parse_args(arguments)
    logging.basicConfig(format="%(asctime)s %(levelname)s %(message)s", level=logging.WARNING)
    logging.getLogger("skpmtl").setLevel(logging.INFO)
    try:
        return globals()[f"_{given.command}"](given)
    except (Refusal, ValueError, OSError, ImportError, RuntimeError) as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
        return 1


def _site(given):
    from .kit import prepare_site

    columns = {k: getattr(given, k) for k in ("task", "target", "weight", "event", "entry")}
    columns = {k: v for k, v in columns.items() if v is not None and given.rows is not None}
    prepare_site(given.kit, given.studies, given.rows, given.server, columns, given.epsilon)
    return _check(argparse.Namespace(path=given.kit))


def _curator(given):
    from .kit import prepare_server

    prepare_server(given.kit)
    return 0


def _key(given):
    from .secret_shares import new_share_key

    if given.path.exists():
        raise ValueError(f"{given.path} is there already: what was sealed for it would be lost.")
    print(new_share_key(given.path))
    return 0


def _check(given):
    from .check import check_site, describe_study

    if given.path.is_dir():
        return int(check_site(given.path / "local" / "site.toml") > 0)
    describe_study(Study.load(given.path))
    return 0


def _run(given):
    from .jobs import run_study

    study = Study.load(given.study)
    if run_study(study, given.kit):
        return 0
    print(
        f"The study {study.name} has not finished: the logs of the server and of the sites say "
        "why. Run it again when this is repaired: it goes on, and spends nothing twice.",
        file=sys.stderr,
    )
    return 1


def _status(given):
    from .runlog import read_log, standing, trouble_lines

    code, text = standing(given.folder)
    print(text, *(f"  {wrong}" for wrong in trouble_lines(read_log(given.folder))), sep="\n")
    return code


if __name__ == "__main__":
    warnings.simplefilter("default", UserWarning)
    sys.exit(main())
