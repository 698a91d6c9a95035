"""Folders for the curator and the sites of studies, with all that they need to start.

A folder holds settings, keys and certificates, the script ``start``, and its equivalents for
systemd and containers. The keys of the sites are made here, by the curator, whom they tell the
sites apart for, and nothing else hangs on them; what a site answers is decided by its own
``site.toml``. Keys are NIST P-256, whose signatures cost little, the authority lives for ten years.
"""

import ipaddress
import json
import shutil
from datetime import timedelta
from pathlib import Path

from .._runtime import certificates
from .._version import __version__
from ..exchange.journal import write_file
from .signing import new_key
from .study import Study

__all__ = ["make_kit"]

_YEARS = 10
PORT = 8000

_START = """\
#!/bin/sh
# Runs until the {what} finished; started again after a crash or an update it goes on.
exec "${{PYTHON:-python}}" -m skpmtl.federated {command} "$(dirname "$0")" "$@"
"""
_SERVICE = """\
# Copy to /etc/systemd/system, with the folder and the user as they are on this machine; then
#   systemctl enable --now {unit}
[Unit]
Description=skpmtl, {role}
After=network-online.target
Wants=network-online.target

[Service]
WorkingDirectory=/srv/{folder}
User=skpmtl
Environment=PYTHON=/srv/skpmtl/bin/python
ExecStart=/srv/{folder}/start
Restart=on-failure
RestartSec=5
KillMode=control-group
NoNewPrivileges=true
PrivateTmp=true
ProtectSystem=strict
ReadWritePaths=/srv/{folder}

[Install]
WantedBy=multi-user.target
"""
_COMPOSE = """\
# docker compose up --build --detach
services:
  {service}:
    build: .
    restart: on-failure
    volumes:
      - .:/srv/study
{ports}"""
_DOCKERFILE = f"""\
FROM python:3.12-slim
RUN pip install --no-cache-dir "skpmtl[flower]=={__version__}" && python -m skpmtl.warm
WORKDIR /srv/study
CMD ["./start"]
"""
_ALERT = """\
# alert = "https://..."  # or a command: called when a study ends, fails or waits for a site
# alert_after = 600      # seconds that a site is waited for before that is one
"""
_SITE = """\
# What this site takes part in, and on what; see the guide on federation.
name = {name}
superlink = {superlink}
certificate = "ca.pem"
key = "site.key"
folder = "books"        # ledger, states and models: keep it, and back it up
{cap}
"""
_STUDY = """
[[study]]
file = {file}
curator = {curator}
"""
_ROWS = """\
rows = "rows.csv"
task = {task}
target = {target}
"""
_SHARES = """\
server = "server.key"   # made here, by  python -m skpmtl.federated key server.key
"""


def make_kit(studies, sites, address, folder, task="task", target="y", cap=None):
    """Write the folders. -> names of the servers of the studies, which have folders, too

    Parameters
    ----------
    studies : list of path-like
        Files of studies that the same sites take part in.
    sites : list of str
        Their names.
    address : str
        Of the curator's machine, as the sites reach it: a name or a number, with or without a port.
    folder : path-like
        To be made; ValueError when it is there, or a name cannot be used.
    task, target : str
        Columns of the sites' rows.
    cap : float, default=None
        One budget for all studies on the same rows: what a site spends at most on them, which may
        be more than these need; None: what these need.
    """
    folder = Path(folder)
    if folder.exists():
        raise ValueError(f"{folder} is there already: name another folder.")
    loaded = [Study.load(path) for path in studies]
    names = [study.name for study in loaded]
    if len(set(names)) < len(names):
        raise ValueError(f"Studies of one name: {names}.")
    servers = {name for study in loaded for name in study.servers or ()}
    if servers & set(sites):
        raise ValueError(f"Sites and servers of one name: {sorted(servers & set(sites))}.")
    for name in [*sites, *servers]:
        if not name.replace("-", "").replace("_", "").isalnum() or name == "curator":
            raise ValueError(f'The name {name!r} of a site must be of letters, digits, "-", "_".')
    if len(set(sites)) < len(sites):
        raise ValueError(f"Sites of one name: {sites}.")
    host, port = _split(address)
    epsilon = sum(float(study.build().epsilon) for study in loaded)
    if cap is not None and epsilon > cap * (1 + 1e-12):
        raise ValueError(
            f"The studies need epsilon {epsilon:g} in all, more than the {cap:g} of their budget."
        )
    folder.mkdir(mode=0o700, parents=True)
    curator = folder / "curator"
    curator.mkdir(mode=0o700)
    (curator / "sites").mkdir()
    public = new_key(curator / "curator.key")
    _certificates(curator, host)
    for path, name in zip(studies, names, strict=True):
        shutil.copyfile(path, curator / f"{name}{Path(path).suffix}")
    files = [f"{name}{Path(path).suffix}" for path, name in zip(studies, names, strict=True)]
    (curator / "curator.toml").write_text(
        f"host = {json.dumps(host)}\nport = {port}\nstudies = {json.dumps(files)}\n" + _ALERT
    )
    ports = f'    ports:\n      - "{port}:{port}"\n'
    _starters(curator, "curator", "the curator", "studies are", ports)
    for name in [*sites, *sorted(servers)]:
        place = folder / name
        place.mkdir(mode=0o700)
        _site_key(place / "site.key", curator / "sites" / f"{name}.pub")
        shutil.copyfile(curator / "ca.pem", place / "ca.pem")
        for file in files:
            shutil.copyfile(curator / file, place / file)
        text = _SITE.format(
            name=json.dumps(name), superlink=json.dumps(f"{_bracketed(host)}:{port}"),
            cap="" if name in servers else
            f"epsilon = {float(cap or epsilon)!r}    # cap on the sum over all studies",
        )  # fmt: skip
        for file, study in zip(files, loaded, strict=True):
            if name in servers and name not in (study.servers or ()):
                continue
            text += _STUDY.format(file=json.dumps(file), curator=json.dumps(public))
            text += (
                _SHARES
                if name in servers
                else _ROWS.format(task=json.dumps(task), target=json.dumps(target))
            )
        (place / "site.toml").write_text(text)
        role = "server" if name in servers else "site"
        _starters(place, "site", f"the {role} {name}", "studies are", "")
    return sorted(servers)


def _starters(place, command, role, what, ports):
    start = place / "start"
    start.write_text(_START.format(what=what, command=command))
    start.chmod(0o755)
    unit = f"skpmtl-{place.name}.service"
    (place / unit).write_text(_SERVICE.format(unit=unit, role=role, folder=place.name))
    (place / "compose.yaml").write_text(_COMPOSE.format(service=place.name.lower(), ports=ports))
    (place / "Dockerfile").write_text(_DOCKERFILE)
    (place / ".dockerignore").write_text("*\n")  # keys and rows are no part of an image


def _split(address):
    """-> host, port"""
    host, colon, port = address.rpartition(":")
    if not colon or address.endswith("]") or address.count(":") > 1 and "]" not in address:
        return address.strip("[]"), PORT
    if not port.isdigit() or not 0 < int(port) < 1 << 16:
        raise ValueError(f"address={address!r} must be a name or number, and may have a port.")
    return host.strip("[]"), int(port)


def _bracketed(host):
    return f"[{host}]" if ":" in host else host


# ------------------------------------------------------------------------------- keys
def _site_key(path, public):
    from cryptography.hazmat.primitives import serialization as form

    key = certificates.new_key()
    private = key.private_bytes(form.Encoding.PEM, form.PrivateFormat.OpenSSH, form.NoEncryption())
    write_file(path, private, 0o600)
    text = key.public_key().public_bytes(form.Encoding.OpenSSH, form.PublicFormat.OpenSSH)
    public.write_bytes(text + b"\n")


def _certificates(folder, host):
    """An authority, and a certificate of the SuperLink for a host and for this machine itself."""
    from cryptography import x509

    # Clocks of sites may be slow.
    valid = {"before": timedelta(days=30), "after": timedelta(days=365 * _YEARS - 30)}
    ca, link = certificates.new_key(), certificates.new_key()
    signs = [certificates.usage("key_cert_sign", "crl_sign")]
    authority = certificates.signed("skpmtl", ca, "skpmtl", ca, extensions=signs, **valid)
    known = map(_general_name, dict.fromkeys([host, "localhost", "127.0.0.1"]))
    server = x509.ExtendedKeyUsage([x509.oid.ExtendedKeyUsageOID.SERVER_AUTH])
    own = [(x509.SubjectAlternativeName(list(known)), False), (server, False)]
    certificate = certificates.signed(host[:64], link, "skpmtl", ca, extensions=own, **valid)
    for stem, key, pem in (("ca", ca, authority), ("link", link, certificate)):
        write_file(folder / f"{stem}.key", certificates.private_bytes(key), 0o600)
        write_file(folder / f"{stem}.pem", pem)


def _general_name(host):
    from cryptography import x509

    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)
