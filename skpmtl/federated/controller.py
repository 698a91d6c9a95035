"""The curator as an NVFlare `Controller`: the channel of `skpmtl.federated.curator`.

Each message is one NVFlare task for one site, named after its kind, and carries text and bytes
only. Files of the curator are in ``studies/NAME`` of the server's kit, which outlives the job: a
job that was cut off is submitted again, and goes on from the journal there.
"""

import time
from pathlib import Path

from .curator import curate
from .study import Study

try:
    from nvflare.apis.controller_spec import Task
    from nvflare.apis.impl.controller import Controller
    from nvflare.apis.shareable import Shareable
except ImportError as error:
    raise ImportError(
        "Federated fits need NVFlare: install the extra with  pip install skpmtl[nvflare]"
    ) from error

__all__ = ["StudyController"]

_LOOK = 0.05  # seconds between two looks for replies


class StudyController(Controller):
    """Runs one study.

    Parameters
    ----------
    study : dict
        The settings of a `Study`, as the job has them.
    """

    def __init__(self, study):
        super().__init__()
        self.study = study

    def start_controller(self, fl_ctx):
        """Nothing: `control_flow` does all."""

    def stop_controller(self, fl_ctx):
        """Nothing: every reply is on disk before it is used."""

    def control_flow(self, abort_signal, fl_ctx):
        """Run the study; the job fails with the error that ended it."""
        try:
            study = Study(**self.study)
            root = fl_ctx.get_engine().get_workspace().get_root_dir()
            curate(_Channel(self, abort_signal, fl_ctx), study, Path(root, "studies", study.name))
        except Exception as error:
            self.system_panic(f"{type(error).__name__}: {error}", fl_ctx)


class _Channel:
    def __init__(self, controller, abort_signal, fl_ctx):
        self.controller, self.abort_signal, self.fl_ctx = controller, abort_signal, fl_ctx

    def sites(self):
        found = [client.name for client in self.fl_ctx.get_engine().get_clients()]
        return [s for s in found if self.controller.get_client_disconnect_time(s) is None]

    def exchange(self, kind, contents, timeout):
        connected = set(self.sites())
        tasks, replies, end = {}, {}, time.monotonic() + timeout
        for site in connected & set(contents):

            def keep(client_task, fl_ctx, site=site):
                replies[site] = dict(client_task.result)

            message = Shareable()
            message.update(contents[site])
            tasks[site] = Task(name=kind, data=message, result_received_cb=keep)
            self.controller.broadcast(tasks[site], self.fl_ctx, targets=[site], min_responses=1)
        waits = set(tasks)
        while waits and time.monotonic() < end:
            if self.abort_signal.triggered:
                raise RuntimeError("The job was aborted; submitted again, it goes on.")
            waits = {site for site in waits if tasks[site].completion_status is None}
            time.sleep(_LOOK)
        for site in waits:
            self.controller.cancel_task(tasks[site], fl_ctx=self.fl_ctx)
        return {site: reply for site, reply in replies.items() if "settings" in reply}
