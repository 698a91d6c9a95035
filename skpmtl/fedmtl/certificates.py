"""Certificates of the servers of a secure aggregation, under an authority of their own."""

from datetime import datetime, timedelta, timezone
from pathlib import Path

from .mpc_server.job import write_secret

__all__ = ["make_certificates"]


def make_certificates(folders, *, days=30):
    """An authority, and a key and a certificate in every server's folder.

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

    Raises
    ------
    FileExistsError
        There is a key already; it is never written over.
    """
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    now, pem = datetime.now(timezone.utc), serialization.Encoding.PEM

    def certificate(name, key, issuer, issuer_key, *extensions):
        subject = x509.Name([x509.NameAttribute(x509.oid.NameOID.COMMON_NAME, name)])
        authority = x509.Name([x509.NameAttribute(x509.oid.NameOID.COMMON_NAME, issuer)])
        builder = (
            x509.CertificateBuilder(issuer_name=authority, subject_name=subject)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - timedelta(hours=1))
            .not_valid_after(now + timedelta(days=days))
        )
        for extension in extensions:
            builder = builder.add_extension(extension, critical=True)
        key_id = x509.SubjectKeyIdentifier.from_public_key(key.public_key())
        from_id = x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer_key.public_key())
        builder = builder.add_extension(key_id, False).add_extension(from_id, False)
        return builder.sign(issuer_key, hashes.SHA256()).public_bytes(pem)

    def usage(**true):
        names = ("digital_signature", "content_commitment", "key_encipherment", "crl_sign",
                 "data_encipherment", "key_agreement", "key_cert_sign", "encipher_only",
                 "decipher_only")  # fmt: skip
        return x509.KeyUsage(**{name: true.get(name, False) for name in names})

    authority_key = ec.generate_private_key(ec.SECP256R1())
    authority = certificate(
        "authority", authority_key, "authority", authority_key,
        x509.BasicConstraints(ca=True, path_length=0), usage(key_cert_sign=True),
    )  # fmt: skip
    for rank, folder in enumerate(folders):
        config = Path(folder) / ".config"
        Path(folder).mkdir(mode=0o700, parents=True, exist_ok=True)
        config.mkdir(mode=0o700, exist_ok=True)
        key = ec.generate_private_key(ec.SECP256R1())
        own = certificate(
            f"MPyC party {rank}", key, "authority", authority_key,
            x509.BasicConstraints(ca=False, path_length=None), usage(digital_signature=True),
        )  # fmt: skip
        (config / "mpyc_ca.crt").write_bytes(authority)
        (config / f"party_{rank}.crt").write_bytes(own)
        secret = key.private_bytes(
            pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        write_secret(config / f"party_{rank}.key", secret)
