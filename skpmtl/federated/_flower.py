"""What is used of Flower, or an error that says how to install it."""

from importlib.metadata import version

try:
    from flwr.app import Array, ArrayRecord, ConfigRecord, Message, MessageType, RecordDict
    from flwr.clientapp import ClientApp
    from flwr.serverapp import ServerApp
except ImportError as error:
    raise ImportError(
        "Federated fits need Flower, on Python 3.11 or newer: install the extra with  "
        "pip install skpmtl[flower]"
    ) from error

flower_version = version("flwr")
__all__ = [
    "Array", "ArrayRecord", "ClientApp", "ConfigRecord", "Message", "MessageType", "RecordDict",
    "ServerApp", "flower_version",
]  # fmt: skip
