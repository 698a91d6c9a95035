"""Sums of contributions that the curator sees only as a whole: Flower's SecAgg+.

A site adds up the bounded contributions of its tasks, rounds the sum to 2^22 steps over a public
range, and masks it; the masks cancel in the sum over the sites. The range is the most tasks of a
site times the bound of the query (`skpmtl.exchange.Total`). Rounding moves a number by less than
a step, and the whole sum by sqrt(size) of them, in one data set and in its neighbour; sites make
their sums smaller by a factor (`Study.room`), so that there is room for that.

Where sites add the noise (`skpmtl.federated.site_noise`) these steps are whole numbers already.

A site opens the sum of a query over one set of sites only (`protocol`): the difference of two sums
would disclose the contributions of the sites in only one of them. It stores the set before it sends
anything; it answers again for the same set, with the same sum under other masks. Sites that are
lost before they have shared their keys are in no mask, and are left out.

Each sum takes two exchanges: masked sums, then the shares that remove the masks. The two exchanges
before these, in which sites make keys and share them, need no query, and travel in the same
messages one sum earlier. Keys, and the masks that follow from them, serve one sum: a site forgets
them when it starts to mask the next. Where other sites take part than those that made them, or one
was started again and has lost them, new ones are made first.

The protocol protects against a curator that follows it and looks at what it gets: the keys of the
sites pass through the curator, who could replace them.
"""

import json
import logging
import math
from types import SimpleNamespace

import numpy as np

from . import records
from ._flower import (
    Code,
    ConfigRecord,
    FitIns,
    FitRes,
    LegacyContext,
    Message,
    RecordDict,
    SecAggPlusWorkflow,
    Status,
    WorkflowState,
    compat,
    ndarrays_to_parameters,
    parameters_to_ndarrays,
    secaggplus_mod,
)
from .refusals import Refusal
from .signing import signed
from .study import LEVELS

__all__ = ["SecureSums", "check_protocol", "protocol", "remember", "write_sum"]

logger = logging.getLogger("skpmtl")
MODULUS = 2**32  # of masked sums; its ratio to the levels of numbers bounds the sites
_STATE, _CONFIGS, _OPEN = "secaggplus_state", "secaggplus_configs", "skpmtl_open"
_AHEAD, _NEXT = "skpmtl_ahead", "skpmtl_next"  # state, and messages, of the sum after this one
_WIRE = "secure"


# ---------------------------------------------------------------------- on the wire
def _packed(content):
    """All settings as one record: each costs requests at the SuperLink. -> RecordDict"""
    settings = {
        f"{name}/{key}": value
        for name, record in content.config_records.items() for key, value in record.items()
    }  # fmt: skip
    return RecordDict({_WIRE: ConfigRecord(settings), **content.array_records})


def _unpacked(content):
    """Undo `_packed`. -> RecordDict"""
    parts = {}
    for name, value in content.config_records.get(_WIRE, {}).items():
        part, _, key = name.partition("/")
        parts.setdefault(part, {})[key] = value
    settings = {name: ConfigRecord(part) for name, part in parts.items()}
    return RecordDict({**settings, **content.array_records})


# ------------------------------------------------------------------------------ a site
def write_sum(total):
    """Records that the protocol masks before they leave; every site weighs the same."""
    parameters = ndarrays_to_parameters([total])
    return compat.fitres_to_recorddict(FitRes(Status(Code.OK, ""), parameters, 1, {}), False)


def remember(context, study, number, run):
    """Record the query of the sum that is opened next."""
    context.state.config_records[_OPEN] = ConfigRecord(
        {"study": study, "number": number, "run": run}
    )


def protocol(site_of):
    """A mod of Flower: its SecAgg+, for the sum that is asked for and for the one after it.

    The site, ``site_of(context, study)``, writes down what it opens; the mark of its books goes
    with its part of the sum, and with its shares of the masks.
    """

    def mod(message, context, call_next):
        message.content = _unpacked(message.content)
        configs = message.content.config_records[_CONFIGS]
        following = message.content.config_records.pop(_NEXT, None)
        stage = configs.get("stage")
        if stage == "collect_masked_vectors":
            _take_keys(context.state.config_records, configs)
        elif stage == "unmask":
            nodes = _check_opening(context, configs)
            asked = context.state.config_records[_OPEN]
            site_of(context, asked["study"]).open_sum(asked["number"], nodes, asked["run"])
        reply = secaggplus_mod(message, context, call_next)
        found = {_CONFIGS: reply.content.config_records[_CONFIGS]}
        if following is not None:
            try:
                found[_NEXT] = _prepare(message, context.state.config_records, following)
            except Exception:  # the sum at hand goes on, and new keys are made for the next one
                logger.exception("No keys for the next secure sum")
        packed = _packed(RecordDict(found))
        if stage in ("collect_masked_vectors", "unmask"):
            site = site_of(context, context.state.config_records[_OPEN]["study"])
            packed.config_records[_WIRE]["mark"] = json.dumps(site.mark())
        return Message(packed, reply_to=message)

    return mod


def _take_keys(states, configs):
    """Mask with keys that were shared with this sum or the last one; each key is used once."""
    if configs.pop("prepared") and _AHEAD in states:
        states[_STATE] = states.pop(_AHEAD)
    if states.get(_STATE, {}).get("current_stage") != "share_keys":
        raise Refusal("keys of this sum are not here: this site may have been started again")
    states[_STATE]["clipping_range"] = configs.pop("clipping_range")


def _prepare(message, states, configs):
    """One of the two stages of the next sum that need no query. -> settings of the reply"""
    if configs.get("stage") not in ("setup", "share_keys"):
        raise Refusal("a sum ahead of its turn")
    message.content.config_records[_CONFIGS] = configs
    ahead = SimpleNamespace(state=RecordDict({_STATE: states[_AHEAD]} if _AHEAD in states else {}))
    reply = secaggplus_mod(message, ahead, None)
    states[_AHEAD] = ahead.state.config_records[_STATE]
    return reply.content.config_records[_CONFIGS]


def _check_opening(context, configs):
    """Refuse to open a sum for which this site lacks shares, or that shows a single site.

    With shares of both secrets of a site its own sum could be read. -> nodes in the sum
    """
    state = context.state.config_records.get(_STATE, {})
    if state.get("current_stage") != "collect_masked_vectors" or _OPEN not in (
        context.state.config_records
    ):
        raise Refusal("no sum of this site waits to be opened; it may have been started again")
    active, dead = configs["active_nids"], configs["dead_nids"]
    if len({*active, *dead}) < len(active) + len(dead) or state["nid"] not in active:
        raise Refusal("a sum with a site twice, or without this one")
    lacking = {*active} - {*state["rd_seed_share_dict:K"]} | {*dead} - {*state["sk1_share_dict:K"]}
    if lacking or len(active) < state["threshold"]:
        raise Refusal(
            f"{len(active)} sites are in the sum, {state['threshold']} are needed, and the shares "
            f"of the nodes {sorted(lacking)} are not here"
        )
    return list(active)


def check_protocol(context, sum_range, least=0, most=math.inf):
    """Refuse settings of the curator under which a sum would show too much, or be too coarse.

    `least`: sites that are needed to open a sum; `most`: sites that there are.
    """
    state = context.state.config_records[_STATE]
    sites, shares, threshold = (state[k] for k in ("sample_num", "share_num", "threshold"))
    found = [state[k] for k in ("clipping_range", "target_range", "mod_range", "max_weight")]
    known = sum_range > 0 and found == [sum_range, LEVELS, MODULUS, 1.0]
    if not known or sites < 3 or shares != sites:
        raise Refusal(f"secure sums over {sites} sites with the settings {found}")
    if 2 * threshold <= sites or threshold < least or sites > most:
        raise Refusal(f"secure sums over {sites} sites that {threshold} of them can open")


# ------------------------------------------------------------------------- the curator
class _Sum(SecAggPlusWorkflow):
    """The stages of one sum, in their order; the first two need no query.

    Each is ``stage(grid) -> bool``, whether enough sites are left.
    """

    def __init__(self, context, nodes, threshold, timeout):
        super().__init__(
            1.0, threshold, max_weight=1.0, quantization_range=LEVELS, modulus_range=MODULUS,
            timeout=timeout,
        )  # fmt: skip
        self.nodes, self.threshold, self._state = nodes, threshold, WorkflowState()
        nothing = FitIns(ndarrays_to_parameters([]), {})
        strategy = SimpleNamespace(
            configure_fit=lambda *_: [(SimpleNamespace(node_id=n), nothing) for n in nodes],
            aggregate_fit=lambda *_: (None, {}),
        )
        manager = SimpleNamespace(num_available=lambda: len(nodes))
        self._context = LegacyContext(context, strategy=strategy, client_manager=manager)
        self._context.state.config_records["config"] = ConfigRecord({"current_round": 1})
        self._context.state.array_records["parameters"] = compat.parameters_to_arrayrecord(
            nothing.parameters, False
        )

    @property
    def left(self):
        """Nodes that have taken part in all stages up to now."""
        return sorted(self._state.active_node_ids)

    def setup(self, grid):
        return self.setup_stage(grid, self._context, self._state)

    def share(self, grid):
        """Flower asks for shares of those, too, who are lost before they have shared their keys."""
        state = self._state
        goes_on = self.share_keys_stage(grid, self._context, state)
        left = state.sampled_node_ids = set(state.active_node_ids)
        state.nid_to_neighbours = {node: state.nid_to_neighbours[node] & left for node in left}
        return goes_on

    def collect(self, grid, queries, sum_range):
        """`queries`: RecordDict by node."""
        self._state.nid_to_fitins, self._state.clipping_range = queries, sum_range
        return self.collect_masked_vectors_stage(grid, self._context, self._state)

    def unmask(self, grid):
        return self.unmask_stage(grid, self._context, self._state)

    def result(self):
        """-> sum as one vector, nodes in it"""
        results = self._state.legacy_results
        (mean,) = parameters_to_ndarrays(results[0][1].parameters)
        return mean * len(results), [client.node_id for client, _ in results]


class _Grid:
    """Sends the messages of a stage, those of ``ahead(grid)``, of the next sum, in them.

    `further` settings are sent in addition.
    """

    def __init__(self, grid, ahead=None, **further):
        self._grid, self._ahead, self._further = grid, ahead, further
        self.failed = []  # nodes that replied with an error

    def send_and_receive(self, messages, *, timeout=None):
        self._messages, self._replies = {m.metadata.dst_node_id: m for m in messages}, None
        if self._ahead is not None:
            self._ahead(SimpleNamespace(send_and_receive=self._with_next))
        if self._replies is None:
            self._exchange({}, timeout)
        return self._replies

    def _with_next(self, messages, *, timeout=None):
        self._exchange({m.metadata.dst_node_id: m.content for m in messages}, timeout)
        return [
            _reply(reply, RecordDict({_CONFIGS: reply.content.config_records[_NEXT]}))
            for reply in self._replies
            if not reply.has_error() and _NEXT in reply.content.config_records
        ]

    def _exchange(self, following, timeout):
        sent = []
        for node, message in self._messages.items():
            settings = {**message.content.config_records}
            settings[_CONFIGS] = ConfigRecord({**settings[_CONFIGS], **self._further})
            if node in following:
                settings[_NEXT] = following[node].config_records[_CONFIGS]
            content = _packed(RecordDict({**settings, **message.content.array_records}))
            kind = message.metadata.message_type
            sent.append(Message(content, dst_node_id=node, message_type=kind, ttl=timeout))
        replies = self._grid.send_and_receive(sent, timeout=timeout)
        self.failed = [reply.metadata.src_node_id for reply in replies if reply.has_error()]
        nothing = write_sum(np.zeros(0))  # which Flower looks for, and sites need not send
        self._replies = [
            reply if reply.has_error()
            else _reply(reply, RecordDict({**nothing, **_unpacked(reply.content)}))
            for reply in replies
        ]  # fmt: skip


def _reply(reply, content):
    """A reply of a site with other content."""
    return SimpleNamespace(metadata=reply.metadata, content=content, has_error=reply.has_error)


class SecureSums:
    """Sums over sites, one after the other; with each, these make the keys of the next.

    `context` is the flwr.app.Context of the ServerApp; answers have `timeout` seconds; `key`, or
    None, signs the queries.
    """

    def __init__(self, grid, context, timeout, key=None):
        self._grid, self._context, self._timeout, self._key = grid, context, timeout, key
        self._ready = None  # a sum whose keys are shared

    def sum(self, arrays, settings, sum_range, least=0):
        """Sum of what the sites sent, as one vector, and which nodes those are.

        The sum is None where the protocol was cut off. `settings` is the query by node, of at least
        three; `sum_range` bounds the numbers that a site adds. No sum is opened without `least`
        sites, and never without more than half of them.
        """
        queries = {
            node: records.write(arrays, **signed(self._key, mine, arrays))
            for node, mine in settings.items()
        }
        nodes, threshold = sorted(queries), max(len(queries) // 2 + 1, least)
        one, self._ready = self._ready, None
        known = one is not None and (one.nodes, one.threshold) == (nodes, threshold)
        for prepared in (True, False) if known else (False,):
            if not prepared:
                one = self._sum(nodes, threshold)
                if not (one.setup(_Grid(self._grid)) and one.share(_Grid(self._grid))):
                    return None, []
            following = self._sum(nodes, threshold)
            grid = _Grid(
                self._grid, following.setup, prepared=prepared, clipping_range=float(sum_range)
            )
            mine = {node: RecordDict({**queries[node]}) for node in one.left}
            goes_on = one.collect(grid, mine, sum_range)
            if not (prepared and grid.failed):
                break
            for node in grid.failed:  # it may have been started again, without its keys
                self._grid.silent.pop(node, None)
            nodes = [node for node in nodes if node not in self._grid.silent]
        if not (goes_on and one.unmask(_Grid(self._grid, following.share))):
            return None, []
        self._ready = following if following.left == nodes else None
        return one.result()

    def _sum(self, nodes, threshold):
        return _Sum(self._context, nodes, threshold, self._timeout)
