"""Sites of a study in one process, which give the real answers and can be made to fail."""

import numpy as np

from skpmtl.federated import load_models, records
from skpmtl.federated.answering import answered
from skpmtl.federated.site_config import SiteConfig
from tests.helpers.federated_cases import PARTS, rows_of


class InProcessSites:
    """A channel of `curate`.

    Parameters
    ----------
    study : Study
    folder : Path
        Where a study has servers, their keys are there: ``name.key``.
    parts : sequence of lists of tasks
    rows : dict of arrays, default=None
        X, y, task, and further columns, as sites name them; None: `rows_of` the study.
    broken : callable, default=None
        ``broken(site, kind, content, reply) -> reply or None``; None: the answer does not come.

    Attributes
    ----------
    sent : list of (site, kind, content)
    received : list of contents
    offline : set of names
    """

    def __init__(self, study, folder, parts=PARTS, broken=None, rows=None):
        self.broken, self.sent, self.received, self.offline = broken, [], [], set()
        self.configs = {}
        folder.mkdir(exist_ok=True)
        (folder / "study.json").write_text(study.to_json())
        rows = rows or dict(zip(("X", "y", "task"), rows_of(study), strict=True))
        more = [f'{name} = "{name}"' for name in rows if name not in ("X", "y", "task")]
        for k, part in enumerate(parts):
            mine = np.isin(rows["task"], part)
            np.savez(folder / f"{k}.npz", **{name: array[mine] for name, array in rows.items()})
            self._add(folder, f"site{k}", "\n".join([f'rows = "{k}.npz"', *more]))
        for name in sorted(study.servers or ()):
            self._add(folder, name, f'server = "{name}.key"')

    def _add(self, folder, name, source):
        path = folder / f"{name}.toml"
        path.write_text(f'folder = "{name}"\n[[study]]\nfile = "study.json"\n{source}\n')
        self.configs[name] = SiteConfig(path)

    def restart(self):
        """New processes everywhere: what was in memory is gone."""
        self.configs = {name: SiteConfig(config.path) for name, config in self.configs.items()}

    def sites(self):
        return [name for name in self.configs if name not in self.offline]

    def exchange(self, kind, contents, timeout):
        replies = {}
        for name, content in contents.items():
            self.sent.append((name, kind, content))
            if name in self.offline:
                continue
            reply = answered(self.configs[name], kind, content)
            if self.broken is not None:
                reply = self.broken(name, kind, content, reply)
            if reply is not None:
                replies[name] = reply
                self.received.append(reply)
        return replies


def changed(reply, arrays=None, **settings):
    """A reply with other arrays, or other settings."""
    known, given = records.read(reply)
    return records.write(given if arrays is None else arrays, **{**known, **settings})


def models_of(folder, study, parts=PARTS):
    coef = {}
    for k in range(len(parts)):
        (place,) = (folder / f"site{k}").glob(f"{study.name}-{study.digest[:12]}")
        est = load_models(place)
        coef.update({task: est.export_task(task) for task in est.tasks_.tolist()})
    return coef
