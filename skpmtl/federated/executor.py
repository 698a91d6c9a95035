"""A site as an NVFlare `Executor`: answers the messages of the curator from its own files."""

from pathlib import Path

from .answering import KINDS, answered
from .site_config import SiteConfig

try:
    from nvflare.apis.executor import Executor
    from nvflare.apis.fl_constant import ReturnCode
    from nvflare.apis.shareable import Shareable, make_reply
except ImportError as error:
    raise ImportError(
        "Federated fits need NVFlare: install the extra with  pip install skpmtl[nvflare]"
    ) from error

__all__ = ["SiteExecutor"]


class SiteExecutor(Executor):
    """Answers for the studies in ``local/site.toml`` of the site's kit.

    It has no parameters: nothing in a job decides what it reads or writes.
    """

    def __init__(self):
        super().__init__()
        self._config = None

    def execute(self, task_name, shareable, fl_ctx, abort_signal):
        """Answer one message; the name of the task is its kind."""
        if task_name not in KINDS:
            return make_reply(ReturnCode.TASK_UNKNOWN)
        if self._config is None:
            folder = fl_ctx.get_engine().get_workspace().get_site_config_dir()
            self._config = SiteConfig(Path(folder, "site.toml"))
        reply = Shareable()
        reply.update(answered(self._config, task_name, dict(shareable)))
        return reply
