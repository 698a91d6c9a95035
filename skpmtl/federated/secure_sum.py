"""Sums of contributions that the curator sees only as a whole: Flower's SecAgg+.

A site adds up the bounded contributions of its tasks, rounds the sum to 2^22 steps over a public
range, and masks it; the masks cancel in the sum over the sites. The range is the most tasks of a
site times the bound of the query (`skpmtl.exchange.Total`). Rounding moves a number by less than
a step, and the whole sum by sqrt(size) of them, in one data set and in its neighbour; sites make
their sums smaller by a factor (`Study.room`), so that there is room for that.

Where sites add the noise (`skpmtl.federated.site_noise`) these steps are whole numbers already.

A site opens the sum of a query over one set of sites only (`opens_once`): two sums over other
sites would show what those in between sent. It writes the set down when it has all that is asked of
it and before it sends any; over the same set it may be asked again, for the same sum under other
masks. Sites that are lost before they have shared their keys are in no mask, and are left out.

The protocol protects against a curator that follows it and looks at what it gets: the keys of the
sites pass through the curator, who could replace them.
"""

import json
import math
from types import SimpleNamespace

from ..exchange.wire import from_npy
from ._flower import (
    Code,
    ConfigRecord,
    FitIns,
    FitRes,
    LegacyContext,
    SecAggPlusWorkflow,
    Status,
    compat,
    ndarrays_to_parameters,
    parameters_to_ndarrays,
)
from .refusals import Refusal
from .signing import signed
from .study import LEVELS

__all__ = ["check_protocol", "opens_once", "read_query", "remember", "secure_sum", "write_sum"]

MODULUS = 2**32  # of masked sums; its ratio to the levels of numbers bounds the sites
_STATE, _CONFIGS, _OPEN = "secaggplus_state", "secaggplus_configs", "skpmtl_open"


# ------------------------------------------------------------------------------ a site
def read_query(message):
    """-> settings, {name: ndarray}"""
    ins = compat.recorddict_to_fitins(message.content, keep_input=True)
    names = json.loads(ins.config["names"])
    arrays = [from_npy(a, name) for name, a in zip(names, ins.parameters.tensors, strict=True)]
    return ins.config, dict(zip(names, arrays, strict=True))


def write_sum(total):
    """Records that the protocol masks before they leave; every site weighs the same."""
    parameters = ndarrays_to_parameters([total])
    return compat.fitres_to_recorddict(FitRes(Status(Code.OK, ""), parameters, 1, {}), False)


def remember(context, study, number, run):
    """Which query the sum that is to be opened next belongs to."""
    context.state.config_records[_OPEN] = ConfigRecord(
        {"study": study, "number": number, "run": run}
    )


def opens_once(site_of):
    """A mod of Flower before that of the protocol, which has the site write down what it opens.

    The mark of its books goes with its part of the sum, and with its shares of the masks.

    Parameters
    ----------
    site_of : callable
        ``site_of(context, study) -> Site``
    """

    def mod(message, context, call_next):
        configs = message.content.config_records.get(_CONFIGS, {})
        stage = configs.get("stage")
        if stage == "unmask":
            nodes = _check_opening(context, configs)
            asked = context.state.config_records[_OPEN]
            site_of(context, asked["study"]).open_sum(asked["number"], nodes, asked["run"])
        reply = call_next(message, context)
        if stage in ("collect_masked_vectors", "unmask"):
            site = site_of(context, context.state.config_records[_OPEN]["study"])
            reply.content.config_records[_CONFIGS]["mark"] = json.dumps(site.mark())
        return reply

    return mod


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
class _Strategy:
    """What the workflow asks of a strategy: whom to ask what, and where the result goes."""

    def __init__(self, questions):
        self.questions = questions
        self.mean, self.answered = None, []

    def configure_fit(self, server_round, parameters, client_manager):
        return [(SimpleNamespace(node_id=node), one) for node, one in self.questions.items()]

    def aggregate_fit(self, server_round, results, failures):
        self.answered = [client.node_id for client, _ in results]
        (self.mean,) = parameters_to_ndarrays(results[0][1].parameters)
        return None, {}


class _Workflow(SecAggPlusWorkflow):
    """The protocol among those who shared their keys: Flower asks for shares of others, too."""

    def share_keys_stage(self, grid, context, state):
        goes_on = super().share_keys_stage(grid, context, state)
        left = state.sampled_node_ids = set(state.active_node_ids)
        state.nid_to_neighbours = {node: state.nid_to_neighbours[node] & left for node in left}
        return goes_on


def secure_sum(grid, context, arrays, settings, sum_range, timeout, key=None, least=0):
    """Sum of what the sites sent, as one vector, and which nodes those are.

    The sum is None where the protocol was cut off.

    Parameters
    ----------
    grid : PollingGrid
    context : flwr.app.Context
        Of the ServerApp.
    arrays : dict of str to ndarray
    settings : dict of int to dict of str to str or int
        The query, by node; at least three.
    sum_range : float
        Bound on the numbers that a site adds.
    timeout : float
        Seconds for the answers.
    key : Ed25519PrivateKey, default=None
        Signs the queries.
    least : int, default=0
        Sites without which no sum is opened; more than half of them are needed always.
    """
    parameters, names = ndarrays_to_parameters(list(arrays.values())), json.dumps(list(arrays))
    questions = {
        node: FitIns(parameters, signed(key, {**mine, "names": names}, arrays))
        for node, mine in settings.items()
    }
    strategy = _Strategy(questions)
    manager = SimpleNamespace(num_available=lambda: len(questions))
    legacy = LegacyContext(context, strategy=strategy, client_manager=manager)
    legacy.state.config_records["config"] = ConfigRecord({"current_round": 1})
    legacy.state.array_records["parameters"] = compat.parameters_to_arrayrecord(
        ndarrays_to_parameters([]), False
    )
    workflow = _Workflow(
        1.0, max(len(questions) // 2 + 1, least), max_weight=1.0, clipping_range=sum_range,
        quantization_range=LEVELS, modulus_range=MODULUS, timeout=timeout,
    )  # fmt: skip
    workflow(grid, legacy)
    if strategy.mean is None:
        return None, []
    return strategy.mean * len(strategy.answered), strategy.answered
