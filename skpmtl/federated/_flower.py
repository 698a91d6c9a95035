"""What is used of Flower, or an error that says how to install it."""

from importlib.metadata import version

try:
    from flwr.app import Array, ArrayRecord, ConfigRecord, Message, MessageType, RecordDict
    from flwr.client.mod import secaggplus_mod
    from flwr.clientapp import ClientApp
    from flwr.common import (
        Code,
        FitIns,
        FitRes,
        Status,
        ndarrays_to_parameters,
        parameters_to_ndarrays,
    )
    from flwr.compat.common import recorddict_compat as compat
    from flwr.server import LegacyContext
    from flwr.server.workflow import SecAggPlusWorkflow
    from flwr.server.workflow.secure_aggregation.secaggplus_workflow import WorkflowState
    from flwr.serverapp import ServerApp
except ImportError as error:
    raise ImportError(
        "Federated fits need Flower, on Python 3.11 or newer: install the extra with  "
        "pip install skpmtl[flower]"
    ) from error

flower_version = version("flwr")
__all__ = [
    "Array", "ArrayRecord", "ClientApp", "Code", "ConfigRecord", "FitIns", "FitRes",
    "LegacyContext", "Message", "MessageType", "RecordDict", "SecAggPlusWorkflow", "ServerApp",
    "Status", "WorkflowState", "compat", "flower_version", "ndarrays_to_parameters",
    "parameters_to_ndarrays", "secaggplus_mod",
]  # fmt: skip
