"""Certificates of the servers of a secure aggregation, under an authority of their own."""

from datetime import timedelta
from pathlib import Path

from .._runtime.certificates import new_key, private_bytes, signed, usage
from .mpc_server.job import write_secret

__all__ = ["make_certificates"]


def make_certificates(folders, *, days=30):
    """Make an authority, and a key and a certificate in the folder of each server.

    The authority's key is forgotten at the end. Whoever runs this knows the servers' keys for a
    moment: between owners that do not trust him, let every server make its own key (doc/fedmtl.rst
    has the commands).

    Parameters
    ----------
    folders : sequence of paths
        Folder of every server, in order of their numbers; made for its owner alone if it is new.
        Files are written to its ``.config``. The certificate of server j has the common name
        "MPyC party j", which the other servers demand of it.
    days : int, default=30
        Validity.

    Raises FileExistsError: there is a key already; it is never written over.
    """
    valid = {"before": timedelta(hours=1), "after": timedelta(days=days)}
    authority_key = new_key()
    authority = signed(
        "authority", authority_key, "authority", authority_key,
        extensions=[usage("key_cert_sign")], **valid,
    )  # fmt: skip
    for rank, folder in enumerate(folders):
        config = Path(folder) / ".config"
        Path(folder).mkdir(mode=0o700, parents=True, exist_ok=True)
        config.mkdir(mode=0o700, exist_ok=True)
        key = new_key()
        own = signed(
            f"MPyC party {rank}", key, "authority", authority_key,
            extensions=[usage("digital_signature")], **valid,
        )  # fmt: skip
        (config / "mpyc_ca.crt").write_bytes(authority)
        (config / f"party_{rank}.crt").write_bytes(own)
        write_secret(config / f"party_{rank}.key", private_bytes(key))
