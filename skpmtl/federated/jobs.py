"""A study as a job of NVFlare, which is submitted again until it has finished."""

import json
import logging
import tempfile
import time
from contextlib import closing
from pathlib import Path

from .answering import KINDS
from .kit import CONTROLLER, EXECUTOR

__all__ = ["run_study", "write_job"]

logger = logging.getLogger("skpmtl")
_JOBS = 20  # that are submitted at most
_LOOK = 2.0  # seconds between two looks at a job
# Seconds between two tries to reach the server, and after the first job that failed; this time
# doubles, because what people have to mend takes long: 20 jobs that fail take two hours.
_PAUSE, _LONGEST = 10.0, 600.0
_MISSES = 5  # looks at a server that does not run a job, until the job is lost


def write_job(study, folder):
    """Write the job of a study; `folder` is made.

    The job has settings only: no code, and no files.
    """
    from nvflare.apis.fl_constant import JobConstants

    folder = Path(folder)
    sites, _ = study.least
    n_servers = len(study.servers or ())
    study_at = {"id": "study", "path": CONTROLLER, "args": {"study": json.loads(study.to_json())}}
    of_sites = {"tasks": list(KINDS), "executor": {"path": EXECUTOR, "args": {}}}
    common = {"format_version": 2, "components": []}
    job = {
        JobConstants.META_FILE: {
            "name": study.name,
            "resource_spec": {},
            "min_clients": sites + n_servers,
            "deploy_map": {"app": ["@ALL"]},
        },
        "app/config/config_fed_server.json": common | {"workflows": [study_at]},
        "app/config/config_fed_client.json": common | {"executors": [of_sites]},
    }
    for name, content in job.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(content, indent=1))


def run_study(study, kit):
    """Submit a study, and submit it again while it fails. -> whether it has finished

    A job that was cut off goes on from the journal at the server and from the ledgers of the sites:
    submitting it again spends nothing.

    Parameters
    ----------
    study : Study
    kit : path-like
        Start-up kit of a user who may submit jobs; its folder has the user's name.

    Raises
    ------
    ValueError
        For a folder that is no such kit.
    nvflare.fuel.flare_api.api_spec.AuthorizationError
        When the user may not submit jobs; also AuthenticationError, InvalidJobDefinition.
    """
    from nvflare.fuel.flare_api import api_spec
    from nvflare.fuel.flare_api.flare_api import new_secure_session

    refused = (
        api_spec.AuthenticationError,
        api_spec.AuthorizationError,
        api_spec.InvalidJobDefinition,
    )
    kit, job, attempts, wait = Path(kit).resolve(), None, _JOBS, _PAUSE
    if not (kit / "startup" / "fed_admin.json").exists():
        raise ValueError(f"{kit} is no start-up kit of a user who may submit jobs.")
    with tempfile.TemporaryDirectory() as folder:
        write_job(study, folder)
        while attempts:
            try:
                with closing(new_secure_session(kit.name, str(kit))) as session:
                    job = job or session.submit_job(folder)
                    status = _end(session, job)
            except api_spec.JobNotFound:
                status = "not known to the server"
            except refused:
                raise
            except Exception as error:  # the server is away, or has just been started
                logger.warning("The server cannot be reached: %s", error)
                time.sleep(_PAUSE)
                continue
            logger.info("Job %s of the study %s: %s", job, study.name, status)
            if status.startswith("FINISHED:COMPLETED"):
                return True
            attempts, job = attempts - 1, None
            time.sleep(wait)
            wait = min(2 * wait, _LONGEST)
    return False


def _end(session, job):
    """Wait for the end of a job. -> its status, and what kept a site from starting it

    A server that was killed still lists its jobs as running: those that it does not run are lost.
    """
    misses = 0
    while misses < _MISSES:
        status = session.get_job_status(job)
        if status.startswith("FINISHED"):
            said = session.get_job_meta(job).get("job_deploy_detail") or []
            return "; ".join([status, *(one for one in said if not one.endswith(": OK"))])
        running = {found.job_id for found in session.get_system_info().job_info}
        misses = misses + 1 if status == "RUNNING" and job not in running else 0
        time.sleep(_LOOK)
    return "lost by the server"
