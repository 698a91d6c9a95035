"""Messages there and back, with a look for replies when there are some.

Flower looks every 3 seconds. Where sites come through the door of a curator
(`skpmtl.federated.door`) `Bells` say when one has replied, so that nobody has to look in between;
without them a look follows every tenth of a second.
"""

import logging
import time

from ._flower import Message

logger = logging.getLogger("skpmtl")

_POLL, _LATE = 0.1, 0.5  # seconds between two looks: at first, and at most
_RARE = 2.0  # the same with bells, whatever these say
_TRIES = 3  # times that a query is sent within its time


class PollingGrid:
    """Sends messages and collects replies.

    ``accept(node, content) -> bool`` says of each reply whether it may be used; None: all are.
    `silent` are the nodes from which replies did not come, and why.
    """

    def __init__(self, grid, bells=None):
        self.grid, self.bells, self.accept, self.silent = grid, bells, None, {}
        self._heard = None  # the bell of replies when they were last looked for

    def rest(self, seconds):
        """Wait, or until there are replies."""
        if self.bells is None:
            time.sleep(seconds)
        else:
            self.bells.replies.wait(self._heard, seconds)

    def exchange(self, messages, timeout):
        """Replies in the order of the messages; None where there is none within `timeout` seconds.

        A message is sent once more after a third of the time, and after two: it may have been lost
        on the way. Only for messages that get the same answer each time.
        """
        messages = list(messages)
        replies = [None] * len(messages)
        start = time.monotonic()
        waiting, tries = {}, 0
        while any(reply is None for reply in replies):
            now = time.monotonic() - start
            due = tries < _TRIES and timeout * tries / _TRIES <= now < timeout
            if tries == 0 or due:  # Flower refuses a message whose time is over
                left = [i for i, reply in enumerate(replies) if reply is None]
                if tries:
                    sent = [_copy(messages[i], timeout - now) for i in left]
                else:
                    sent = messages
                numbers = self._push(sent)
                waiting.update((n, i) for n, i in zip(numbers, left, strict=False) if n is not None)
                tries += 1
            for reply in self._pull(list(waiting)):
                place = waiting.pop(reply.metadata.reply_to_message_id, None)
                if place is None or reply.has_error():  # its node is away just now
                    continue
                replies[place] = reply if replies[place] is None else replies[place]
            if now >= timeout:
                break
            if any(reply is None for reply in replies):
                pause = _RARE if self.bells else min(max(_POLL, now / 10), _LATE)
                self.rest(min(pause, max(timeout * tries / _TRIES - now, _POLL)))
        for i, message in enumerate(messages):
            node, reply = message.metadata.dst_node_id, replies[i]
            if reply is None:
                self.silent[node] = f"no reply in {timeout:g} s"
            elif self.accept is not None and not self.accept(node, reply.content):
                self.silent[node], replies[i] = "its reply must not be used", None
        return replies

    def push(self, messages):
        """Send messages without waiting. -> {number: node}"""
        messages = list(messages)
        numbers = self._push(messages) if messages else []
        nodes = [message.metadata.dst_node_id for message in messages]
        return {n: node for n, node in zip(numbers, nodes, strict=False) if n is not None}

    def _push(self, messages):
        numbers = list(self.grid.push_messages(messages))
        if self.bells is not None:
            self.bells.queries.ring()
        return numbers

    def pull(self, numbers):
        """Replies that are there to the messages of these numbers."""
        return self._pull(list(numbers))

    def _pull(self, numbers):
        """Replies that are there; one that cannot be read must not hide the others."""
        if not numbers:
            return []
        if self.bells is not None:
            self._heard = self.bells.replies.count()  # what comes from now on rings once more
        try:
            return list(self.grid.pull_messages(numbers))
        except (ValueError, TypeError, KeyError) as error:
            if len(numbers) == 1:
                logger.warning("A reply cannot be read: %s", error)
                return []
            return [reply for number in numbers for reply in self._pull([number])]


def _copy(message, ttl):
    given = message.metadata
    return Message(
        message.content, dst_node_id=given.dst_node_id, message_type=given.message_type, ttl=ttl
    )
