"""Signatures (Ed25519) of the curator's queries: a site knows whom it answers.

Whoever can start a program on the SuperLink could ask otherwise. A signature covers all settings
of a message and the numbers that come with it.
"""

import hashlib
import json
from pathlib import Path

import numpy as np

from ..exchange.journal import write_file
from .refusals import Refusal

__all__ = ["check_signature", "new_key", "signed"]


def new_key(path):
    """Make a private key of the curator in a file. -> public key, in hexadecimal"""
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    return write_key(path, Ed25519PrivateKey.generate())


def write_key(path, key):
    """Write a private key of any kind. -> public key, in hexadecimal"""
    from cryptography.hazmat.primitives import serialization as form

    text = key.private_bytes(form.Encoding.PEM, form.PrivateFormat.PKCS8, form.NoEncryption())
    write_file(path, text, 0o600)
    return key.public_key().public_bytes_raw().hex()


def read_key(path):
    """The private key of a file, as `new_key` writes it."""
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    return load_pem_private_key(Path(path).read_bytes(), None)


def signed(key, settings, arrays):
    """Settings with the signature of these and the arrays; as they are without a key."""
    if key is None:
        return settings
    return {**settings, "signature": key.sign(_text(settings, arrays)).hex()}


def check_signature(public, settings, arrays):
    """Refuse a message that the owner of a public key (hexadecimal) has not signed."""
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    try:
        key = Ed25519PublicKey.from_public_bytes(bytes.fromhex(public))
        key.verify(bytes.fromhex(settings["signature"]), _text(settings, arrays))
    except (InvalidSignature, KeyError, TypeError, ValueError) as error:
        raise Refusal("the query is not signed by the curator that this site knows") from error


def _text(settings, arrays):
    settings = {name: value for name, value in settings.items() if name != "signature"}
    codes = {}
    for name, array in arrays.items():
        array = np.asarray(array)
        code = hashlib.sha256(array.tobytes()).hexdigest()
        codes[name] = [array.dtype.str, list(array.shape), code]
    return json.dumps([settings, codes], sort_keys=True).encode()
