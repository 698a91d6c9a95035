"""X.509 certificates under an authority of one's own; needs the library cryptography."""

from datetime import datetime, timezone


def new_key():
    from cryptography.hazmat.primitives.asymmetric import ec

    return ec.generate_private_key(ec.SECP256R1())


def signed(subject, key, issuer, issuer_key, *, before, after, extensions=()):
    """A certificate in PEM.

    Parameters
    ----------
    subject, issuer : str
        Common names.
    key, issuer_key : private keys
        Of an authority itself they are the same.
    before, after : timedelta
        How long before and after now it is valid.
    extensions : sequence of (extension, critical)
        Besides the identifiers of both keys. An authority may sign certificates, and nothing else.
    """
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.serialization import Encoding

    def name(text):
        return x509.Name([x509.NameAttribute(x509.oid.NameOID.COMMON_NAME, text)])

    now, is_authority = datetime.now(timezone.utc), key is issuer_key
    builder = (
        x509.CertificateBuilder(issuer_name=name(issuer), subject_name=name(subject))
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - before)
        .not_valid_after(now + after)
    )
    key_id = x509.SubjectKeyIdentifier.from_public_key(key.public_key())
    from_id = x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer_key.public_key())
    constraints = x509.BasicConstraints(ca=is_authority, path_length=0 if is_authority else None)
    for extension, critical in (
        (constraints, True),
        (key_id, False),
        (from_id, False),
        *extensions,
    ):
        builder = builder.add_extension(extension, critical)
    return builder.sign(issuer_key, hashes.SHA256()).public_bytes(Encoding.PEM)


def usage(*names):
    """The extension that says what a key may be used for, which is critical."""
    from cryptography import x509

    known = (
        "digital_signature",
        "content_commitment",
        "key_encipherment",
        "data_encipherment",
        "key_agreement",
        "key_cert_sign",
        "crl_sign",
        "encipher_only",
        "decipher_only",
    )
    return x509.KeyUsage(**{name: name in names for name in known}), True


def private_bytes(key):
    """A private key in PEM, without a password."""
    from cryptography.hazmat.primitives import serialization as form

    return key.private_bytes(form.Encoding.PEM, form.PrivateFormat.PKCS8, form.NoEncryption())
