"""A trial of a federation on one machine: a curator and three sites, started and ended together."""

import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from importlib import import_module
from pathlib import Path

import numpy as np

from ..tables.files import TableFile
from ..tables.ids import encode_ids, listed
from .provisioning import make_kit
from .runlog import FINISHED, line, read_log, standing, trouble_lines
from .study import Study

__all__ = ["run_demo"]

SITES = ("site-a", "site-b", "site-c")
_STUDY = Path(__file__).with_name("demo.toml")
_LOOK = 0.2  # seconds
_PATIENCE = 20.0  # seconds for processes to end by themselves


def run_demo(folder=None, rows=None, task="task", target="y", epsilon=1.0, n_rounds=5):
    """Make a kit of three sites, run its study, and end all processes. -> exit status

    `folder` is made; None: one in the folder for temporary files. `rows` is a CSV file with all
    tasks, dealt out to the sites, in which all columns but `task` and `target` are features and
    have to be numbers; None: the School data.
    """
    if folder is None:
        folder = Path(tempfile.mkdtemp(prefix="skpmtl-demo-")) / "kit"
    folder = Path(folder).resolve()
    X, y, tasks, names = _school() if rows is None else _table(rows, task, target)
    path = folder.parent / f"{folder.name}-study.json"
    folder.parent.mkdir(parents=True, exist_ok=True)
    ids, codes = np.unique(tasks, return_inverse=True)
    if len(ids) < len(SITES):
        raise ValueError(f"{len(ids)} tasks are too few for {len(SITES)} sites.")
    given = import_module("tomllib").loads(_STUDY.read_text())  # Python >= 3.11
    parameters = {"epsilon": epsilon, "n_rounds": n_rounds}
    study = Study(**given, tasks=ids.tolist(), features=names, parameters=parameters)
    path.write_text(study.to_json())
    make_kit([path], SITES, f"localhost:{_free_port()}", folder, task, target)
    for name, part in zip(SITES, np.array_split(np.arange(len(ids)), len(SITES)), strict=True):
        mine = np.isin(codes, part)
        np.savez(folder / name / "rows.npz", X=X[mine], **{task: tasks[mine], target: y[mine]})
        settings = folder / name / "site.toml"
        settings.write_text(settings.read_text().replace("rows.csv", "rows.npz"))
    path.unlink()  # the kit has copies
    print(f"{folder} has the folders of a curator and of {listed(SITES)}, as `kit` makes them.")
    return _run(folder)


def _run(folder):
    """Start all processes, show what happens, and end them."""
    environment = {**os.environ, "PYTHON": sys.executable, "PYTHONUNBUFFERED": "1"}
    processes, logs = {}, {}
    try:
        for name in ("curator", *SITES):
            logs[name] = folder / name / "log.txt"
            with open(logs[name], "ab") as log:
                processes[name] = subprocess.Popen(
                    [folder / name / "start"], env=environment, stdout=log, stderr=log,
                    stdin=subprocess.DEVNULL, start_new_session=True,
                )  # fmt: skip
        _follow(folder, processes)
    except KeyboardInterrupt:
        print("Stopped; start it again with the commands start of the folders.")
    finally:
        _end(processes)
    status, text = standing(folder / "curator" / "demo")
    print(f"The study is {text}.")
    for wrong in trouble_lines(read_log(folder / "curator" / "demo")):
        print(f"  {wrong}")
    print(f"Page: {folder / 'curator' / 'demo' / 'run.html'}")
    print(f"Models of the first site: {folder / SITES[0] / 'books'}")
    if status != FINISHED:
        print(f"Logs: {listed([str(path) for path in logs.values()])}")
    return status


def _follow(folder, processes):
    """Print the events of the run until the curator has ended, or a site has failed."""
    seen = 0
    while processes["curator"].poll() is None:
        events = read_log(folder / "curator" / "demo")
        for event in events[seen:]:
            print(f"{event['at'][11:19]} {line(event)}", flush=True)
        seen = len(events)
        for name, process in processes.items():
            if process.poll() not in (None, 0):
                print(f"{name} has ended with exit status {process.returncode}")
                return
        time.sleep(_LOOK)
    for event in read_log(folder / "curator" / "demo")[seen:]:
        print(f"{event['at'][11:19]} {line(event)}", flush=True)


def _end(processes):
    """Wait for sites that have their models, and end what is left, with its children."""
    end = time.monotonic() + _PATIENCE
    curator = processes.get("curator")
    if curator is None or curator.poll() != 0:
        end = time.monotonic()
    for number, patience in ((None, 0.0), (signal.SIGTERM, _PATIENCE), (signal.SIGKILL, 5.0)):
        for process in processes.values():
            if number is not None and process.poll() is None:
                os.killpg(process.pid, number)
        until = max(end, time.monotonic() + patience)
        while any(p.poll() is None for p in processes.values()) and time.monotonic() < until:
            time.sleep(_LOOK)


def _school():
    from sklearn.preprocessing import normalize

    from ..datasets.school import load_school

    data = load_school(scale="public")
    return normalize(data.data), data.target / 70.0, data.task, list(data.feature_names)


def _table(path, task, target):
    file = TableFile(Path(path))
    names = [name for name in file.names if name not in (task, target)]
    table = file.read([*names, target], {task: ()}, "Leave columns of text out.")
    codes, ids = encode_ids(table[task])
    return table[names].to_numpy(), table[target].to_numpy(), ids[codes], names


def _free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]
