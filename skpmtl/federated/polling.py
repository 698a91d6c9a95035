"""Messages there and back, with a look for replies more often than Flower's every 3 seconds."""

import logging
import time

logger = logging.getLogger("skpmtl")

_POLL = 0.1  # seconds


class PollingGrid:
    """Sends messages and collects replies.

    Parameters
    ----------
    grid : flwr.serverapp.Grid
    """

    def __init__(self, grid):
        self.grid = grid

    def exchange(self, messages, timeout):
        """Replies in the order of the messages; None where there is none in time."""
        messages = list(messages)
        replies = [None] * len(messages)
        if not messages:
            return replies
        numbers = self.grid.push_messages(messages)
        waiting = {number: i for i, number in enumerate(numbers) if number is not None}
        end = time.monotonic() + timeout
        while waiting and time.monotonic() < end:
            for reply in self._pull(list(waiting)):
                place = waiting.pop(reply.metadata.reply_to_message_id, None)
                if place is not None:
                    replies[place] = reply
            if waiting:
                time.sleep(_POLL)
        return replies

    def send_and_receive(self, messages, *, timeout=None):
        """As of a grid of Flower; `timeout` is needed."""
        return [reply for reply in self.exchange(messages, timeout) if reply is not None]

    def _pull(self, numbers):
        """Replies that are there; one that cannot be read must not hide the others."""
        try:
            return list(self.grid.pull_messages(numbers))
        except (ValueError, TypeError, KeyError) as error:
            if len(numbers) == 1:
                logger.warning("A reply cannot be read: %s", error)
                return []
            return [reply for number in numbers for reply in self._pull([number])]
