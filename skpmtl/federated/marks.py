"""How far the books of every site go, as the curator has seen them: never back.

A site, or a server, sends the mark of its books (`skpmtl.federated.ledger.Account.mark`) with every
answer, and the curator sends the last one that it has with every query. Books that were put back
from before, or removed, are so noticed at both ends before anything is answered a second time.
"""

import json

from ..exchange.journal import write_file

__all__ = ["Marks"]


class Marks:
    """Marks by name of the site, in ``marks.json`` of the curator.

    Raises ValueError where the file is damaged, or missing although there are answers already
    (`begun`).
    """

    def __init__(self, path, begun):
        self.path, self._changed = path, False
        if not path.exists() and not begun:
            self._known = {}
            return
        try:
            known = json.loads(path.read_text())
            self._known = {name: _checked(mark) for name, mark in known.items()}
        except (OSError, ValueError, TypeError, AttributeError) as error:
            raise ValueError(
                f"{path} is missing or damaged ({type(error).__name__}): restore it from "
                "a backup. Without it, sites with older books than before would answer queries a "
                'second time; if there are none, write "{}" into it.'
            ) from error

    def of(self, name):
        """The last mark of a site, or None."""
        return self._known.get(name)

    def take(self, name, mark):
        """Remember the `mark` of a site (JSON). -> whether its books go as far as they did

        Raises ValueError for what is no mark.
        """
        mark, known = _checked(json.loads(mark)), self._known.get(name)
        if known is not None and (mark[0] < known[0] or mark[0] == known[0] and mark != known):
            return False
        self._changed |= mark != known
        self._known[name] = mark
        return True

    def save(self):
        """Put what was taken on the disk, before it is used."""
        if self._changed:
            write_file(self.path, json.dumps(self._known).encode(), 0o600)
            self._changed = False


def _checked(mark):
    if not isinstance(mark, list) or [type(item) for item in mark] != [int, str] or mark[0] < 0:
        raise ValueError("no mark")
    return mark
