"""A Flower grid in one process, whose sites run the real ClientApp and can be told to fail."""

import json
from copy import deepcopy
from dataclasses import asdict

import numpy as np
import pytest

from tests.helpers.federated_cases import PARTS, rows_of

pytest.importorskip("flwr", reason="needs Flower: pip install skpmtl[flower]")

from flwr.app import Context, Error, Message, RecordDict
from flwr.serverapp import Grid
from flwr.supercore.task_identity import TaskIdentity

from skpmtl.federated import load_models
from skpmtl.federated.client import app
from skpmtl.federated.server import curate


class InProcessGrid(Grid):
    """Hands messages to the ClientApp. `broken` may replace any reply.

    Parameters
    ----------
    study : Study
    folder : Path
        Where a study has servers, their keys are there: ``name.key``.
    parts : sequence of lists of tasks
    broken : callable, default=None
        ``broken(node, message, reply) -> reply or None``; None: the answer does not come.
    """

    def __init__(self, study, folder, parts=PARTS, broken=None):
        TaskIdentity.run_id = TaskIdentity.node_id = TaskIdentity.task_id = 1
        self.broken, self.sent, self.received = broken, [], []
        self.replies, self.offline = {}, set()
        self.contexts = {}
        folder.mkdir(exist_ok=True)
        (folder / "study.json").write_text(json.dumps(asdict(study)))
        X, y, task = rows_of(study)
        for k, part in enumerate(parts):
            mine = np.isin(task, part)
            np.savez(folder / f"{k}.npz", X=X[mine], y=y[mine], task=task[mine])
            (folder / f"site{k}.toml").write_text(
                f'name = "site-{k}"\nsuperlink = "here"\nfolder = "site{k}"\n'
                f'[[study]]\nfile = "study.json"\nrows = "{k}.npz"\n'
            )
            self._add(1000 + k, folder / f"site{k}.toml")
        for k, name in enumerate(sorted(study.servers or ())):
            (folder / f"{name}.toml").write_text(
                f'name = "{name}"\nsuperlink = "here"\nfolder = "{name}"\n'
                f'[[study]]\nfile = "study.json"\nserver = "{name}.key"\n'
            )
            self._add(2000 + k, folder / f"{name}.toml")

    def _add(self, node, path):
        self.contexts[node] = Context(1, node, {"site": str(path)}, RecordDict(), {})

    def set_run(self, run):
        pass

    @property
    def run(self):
        raise NotImplementedError

    def create_message(self, content, message_type, dst_node_id, group_id, ttl=None):
        raise NotImplementedError

    def send_and_receive(self, messages, *, timeout=None):
        raise NotImplementedError

    def get_node_ids(self):
        return [node for node in self.contexts if node not in self.offline]

    def push_messages(self, messages):
        numbers = []
        for message in messages:
            node, number = message.metadata.dst_node_id, f"m{len(self.sent)}"
            message.metadata.__dict__["_message_id"] = number
            self.sent.append(message)
            numbers.append(number)
            reply = self.query(node, message) if node not in self.offline else None
            if self.broken is not None:
                reply = self.broken(node, message, reply)
            if reply is not None:
                self.replies[number] = reply
                self.received.append(reply)
        return numbers

    def query(self, node, message):
        """What Flower does: the text of an error becomes the reply."""
        try:
            return app(deepcopy(message), self.contexts[node])  # a real site has its own
        except Exception as error:
            return Message(Error(code=1, reason=str(error)), reply_to=message)

    def pull_messages(self, numbers):
        return [self.replies.pop(n) for n in numbers if n in self.replies]


def models_of(folder, study, parts=PARTS):
    coef = {}
    for k in range(len(parts)):
        (place,) = (folder / f"site{k}").glob(f"{study.name}-{study.digest[:12]}")
        est = load_models(place)
        coef.update({task: est.export_task(task) for task in est.tasks_.tolist()})
    return coef


def without_site_1(tmp_path, study):
    parts = [PARTS[0], PARTS[2]]
    with pytest.warns(UserWarning, match="Held by no site.*0, 2, 8"):
        return curate(InProcessGrid(study, tmp_path, parts), study, tmp_path / "curator")
