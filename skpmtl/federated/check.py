"""What can be seen before a study starts, at either end: versions, keys, clock, rows, books."""

import json
import math
import socket
import ssl
import time
from datetime import datetime, timezone
from email.utils import parsedate_to_datetime
from http.client import HTTPConnection, HTTPSConnection
from pathlib import Path
from platform import python_version

import numpy as np

from .._version import __version__
from .ledger import Ledger, Refusal, spending
from .site_config import SiteConfig
from .study import Study
from .supervisor import read_curator

__all__ = ["check_curator", "check_site", "describe_study"]

_SOON = 30  # days before a certificate ends


class Findings:
    """Lines of a check, and whether one of them is a fault."""

    def __init__(self):
        self.faults = 0

    def ok(self, what, text):
        print(f"ok     {what:<12} {text}")

    def fault(self, what, text):
        self.faults += 1
        print(f"FAULT  {what:<12} {text}")

    def look(self, what, function):
        """``function() -> text``; what it raises is a fault."""
        try:
            self.ok(what, function())
            return True
        except (ValueError, TypeError, KeyError, OSError, ImportError, Refusal) as error:
            self.fault(what, f"{type(error).__name__}: {error}")
            return False


def describe_study(study):
    """What a study says, for people who compare it."""
    est = study.build()
    print(f"study    {study.name}: {est}")
    print(f"tasks    {len(study.tasks)}, features {study.n_features}")
    print(f"epsilon  {est.epsilon}")
    for name, key in sorted((study.servers or {}).items()):
        print(f"server   {name} {key}")
    print(f"digest   {study.digest}")


def check_site(path, rows=None):
    """Of a ``site.toml``. -> number of faults"""
    found = Findings()
    _versions(found)
    homes = []

    def settings():
        homes.append(SiteConfig(path, rows))
        return f"{homes[0].settings.name}, {len(homes[0].parts)} studies"

    if not found.look("settings", settings):
        return found.faults
    config = homes[0]
    settings = config.settings
    if settings.certificate is None:
        found.fault("connection", "no certificate: what is sent can be read on the way")
    else:
        found.look("certificate", lambda: _certificate(settings.certificate))
    if settings.key is not None:
        found.look("key", lambda: _private(settings.key))
    ledger = []

    def books():
        ledger.extend(map(json.loads, Ledger(config.folder).read()))
        spent = spending(ledger)
        return f"{len(ledger)} lines of {len(spent)} studies, epsilon {sum(spent.values()):g}"

    found.look("books", books)
    for part in config.parts:
        found.look("study", lambda part=part: _study(config, part, ledger))
    there = {}
    if found.look("superlink", lambda: _superlink(settings, there)):
        _compare(found, config, there)
    return found.faults


def _compare(found, config, there):
    """What the curator's side says of this site: whether it knows the key, and the same study."""
    if "skpmtl" not in there:
        found.ok("curator", "no keys and studies to compare: the address has no proxy of skpmtl")
        return
    name = there["site"]
    if config.settings.key is not None:
        found.look("known", lambda: f"the curator knows this key as {name}" if name else _no(
            "the curator knows no such key: restore site.key, or give the curator site.key.pub "
            f"as sites/{config.settings.name}.pub"
        ))  # fmt: skip
    if there["skpmtl"] != __version__:
        found.fault("version", f"skpmtl {__version__} here, {there['skpmtl']} at the curator")
    for part in config.parts:
        if name:
            found.look("same", lambda part=part: _same(Study.load(part.file), there["studies"]))


def _same(study, digests):
    if study.name not in digests:
        _no(f"the curator runs no study {study.name}, but {', '.join(digests)}")
    if digests[study.name] != study.digest:
        _no(
            f"{study.name} is another study at the curator, digest {digests[study.name]}: compare "
            "the files"
        )
    return f"{study.name} has the same digest at the curator"


def _study(config, part, ledger):
    study = Study.load(part.file)
    site = config.open(part, study)
    signed = "" if part.curator else ", QUERIES OF ANYBODY (site.toml names no curator)"
    if part.server is not None:
        _private(part.server)
        describe_study(study)
        last = site.last()
        return f"{study.name}: server {site.name}, answered up to query {last}{signed}"
    spent = spending(ledger)
    spent[study.digest] = float(study.build().epsilon)
    total = math.fsum(spent.values())
    if total > config.settings.epsilon * (1 + 1e-12):
        raise ValueError(
            f"{study.name} needs epsilon {spent[study.digest]:g}, which makes {total:g} in all; "
            f"site.toml allows {config.settings.epsilon:g}."
        )
    length = np.median(np.linalg.norm(site.table.X, axis=1))
    describe_study(study)
    return (
        f"{study.name}: {len(site.positions)} tasks, {len(site.table.y)} rows of median length "
        f"{length:.3g}, answered up to query {site.last()}{signed}"
    )


def check_curator(folder):
    """Of a curator's folder. -> number of faults"""
    found, folder = Findings(), Path(folder)
    _versions(found)
    settings = []

    def read():
        settings.append(read_curator(folder))
        return f"{settings[0].host}, port {settings[0].port}"

    if not found.look("settings", read):
        return found.faults
    for name in ("ca.pem", "link.pem"):
        found.look("certificate", lambda name=name: _certificate(folder / name))
    found.look("names", lambda: _names(folder / "link.pem", settings[0].host))
    for name in ("ca.key", "link.key", "curator.key"):
        found.look("key", lambda name=name: _private(folder / name))
    keys = sorted((folder / "sites").glob("*.pub"))
    found.look("sites", lambda: ", ".join(key.stem for key in keys) or _no("no keys of sites"))
    for file in settings[0].studies:
        found.look("study", lambda file=file: _public(folder / file))
    found.look("port", lambda: _port(settings[0].port))
    return found.faults


def _no(text):
    raise ValueError(text)


def _public(path):
    study = Study.load(path)
    describe_study(study)
    return study.name


def _port(port):
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("0.0.0.0", port))
        except OSError:
            return f"{port} is in use: by the SuperLink, if the curator runs already"
    return f"{port} is free"


def _versions(found):
    def versions():
        from ._flower import flower_version
        from .site_process import VERSIONS

        if not flower_version.startswith(tuple(f"{v}." for v in VERSIONS)):
            _no(f"Flower {flower_version} is none of {', '.join(VERSIONS)}")
        return f"skpmtl {__version__}, Flower {flower_version}, Python {python_version()}"

    found.look("versions", versions)


def _private(path):
    if Path(path).stat().st_mode & 0o077:
        _no(f"{path} can be read by others: chmod 600")
    if b"PRIVATE KEY" not in Path(path).read_bytes():
        _no(f"{path} is no private key")
    return Path(path).name


def _certificate(path):
    from cryptography.x509 import load_pem_x509_certificate

    found = load_pem_x509_certificate(Path(path).read_bytes())
    now = datetime.now(timezone.utc)
    if not found.not_valid_before_utc <= now <= found.not_valid_after_utc:
        _no(
            f"{path} holds from {found.not_valid_before_utc:%Y-%m-%d} to "
            f"{found.not_valid_after_utc:%Y-%m-%d}, and the clock here says {now:%Y-%m-%d %H:%M}"
        )
    left = (found.not_valid_after_utc - now).days
    return f"{Path(path).name} holds for {left} days" + (" ONLY" if left < _SOON else "")


def _names(path, host):
    from cryptography import x509

    found = x509.load_pem_x509_certificate(Path(path).read_bytes())
    names = found.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    known = [str(name.value) for name in names]
    if host not in known:
        _no(f"the certificate is for {', '.join(known)}, not for {host}")
    return ", ".join(known)


def _superlink(settings, there):
    """Reach it, and compare clocks; nothing but the public key is sent. Fills `there`."""
    host, _, port = settings.superlink.rpartition(":")
    if settings.certificate is None:
        link = HTTPConnection(host.strip("[]"), int(port), timeout=10)
    else:
        context = ssl.create_default_context(cafile=settings.certificate)
        link = HTTPSConnection(host.strip("[]"), int(port), timeout=10, context=context)
    try:
        headers = {"user-agent": f"skpmtl/{__version__} ({settings.name})"}
        if settings.key is not None:
            from flwr.supercore.constant import FLEET_HTTP_PUBLIC_KEY_HEADER

            from .site_process import public_key_of

            headers[FLEET_HTTP_PUBLIC_KEY_HEADER] = public_key_of(settings.key)
        link.request("GET", "/hello", headers=headers)
        response = link.getresponse()
        date = response.headers.get("date")
        if response.status == 200:
            there.update(json.loads(response.read()))
    finally:
        link.close()
    text = f"{settings.superlink} answers"
    if date is not None:
        ahead = time.time() - parsedate_to_datetime(date).timestamp()
        text += f"; the clock here is {ahead:+.0f} s off" + (
            ", which is allowed for" if abs(ahead) > 5 else ""
        )
    return text
