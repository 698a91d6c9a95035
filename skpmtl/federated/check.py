"""What can be seen before a study starts: rows, cap, books and digest of a site.

``nvflare preflight-check`` looks at the rest: certificates, ports, and the server.
"""

import json
import math

import numpy as np
from scipy import sparse

from .ledger import Ledger, Refusal, spending
from .site_config import SiteConfig
from .study import Study

__all__ = ["check_site", "describe_study"]


def describe_study(study):
    """Print what a study says, for people who compare it."""
    est = study.build()
    print(f"study    {study.name}: {est}")
    print(f"tasks    {len(study.tasks)}, features {study.n_features}")
    print(f"epsilon  {est.epsilon}")
    report = est.set_params(tasks=study.tasks)._planned_report(study.population())
    if not report.releases:
        print(f"WARNING  nothing will be released: {report.notes['reason']}")
    for name, key in sorted((study.servers or {}).items()):
        print(f"server   {name} {key}")
    print(f"digest   {study.digest}")


def check_site(path):
    """Check a ``site.toml``, and print what is found. -> number of faults"""
    config, faults = SiteConfig(path), 0
    lines = [json.loads(line) for line in Ledger(config.folder).read()[0]]
    spent, cap = spending(lines), config.settings.epsilon
    print(f"books    {len(lines)} answers, epsilon {math.fsum(spent.values()):g} of {cap:g}")
    for part in config.settings.study:
        study = Study.load(part.file)
        describe_study(study)
        try:
            site = config.open(part, study)
            if part.server is not None:
                print(f"ok       server {site.name}, answered up to query {site.last()}")
                continue
            spent[study.digest] = float(study.build().epsilon)
            total = math.fsum(spent.values())
            if total > cap * (1 + 1e-12):
                raise ValueError(
                    f"{study.name} makes epsilon {total:g} in all, and site.toml allows {cap:g}: "
                    "raise epsilon there, or leave the study out."
                )
            X = sparse.csr_array(site.table.X)
            length = np.median(np.sqrt((X * X).sum(axis=1)))
            print(
                f"ok       {len(site.positions)} tasks, {len(site.table.y)} rows of median length "
                f"{length:.3g}, answered up to query {site.last()}"
            )
        except (ValueError, TypeError, KeyError, OSError, ImportError, Refusal) as error:
            faults += 1
            print(f"FAULT    {type(error).__name__}: {error}")
    return faults
