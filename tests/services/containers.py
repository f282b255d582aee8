"""The same servers from compose.yaml, for machines where Docker really runs."""

import functools
import hashlib
import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from tests.services.packages import run
from tests.services.service import Service, Unavailable

COMPOSE_FILE = Path(__file__).parents[2] / "compose.yaml"


@functools.cache
def available() -> bool:
    return bool(shutil.which("docker")) and answers("info") and answers("compose", "version")


def answers(*arguments: str) -> bool:
    try:
        done = subprocess.run(["docker", *arguments], capture_output=True, timeout=20, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.returncode == 0


def start(services: Sequence[Service]) -> None:
    """One call for all of them: parallel ones race for the network they share."""
    for service in services:
        service.home.mkdir(parents=True, exist_ok=True)
        service.choose_ports()
    try:
        compose(services, "up", "--detach", "--wait")
    except Unavailable:
        compose(services, "rm", "--stop", "--force")
        raise
    for service in services:
        service.container.touch()


def stop(service: Service) -> bool:
    if not service.container.exists():
        return False
    compose([service], "stop")
    service.container.unlink()
    return True


def wipe(service: Service) -> None:
    if available():
        compose([service], "rm", "--stop", "--force", "--volumes")


def compose(services: Sequence[Service], *arguments: str) -> None:
    if not available():
        raise Unavailable("was started by Docker, which does not answer now")
    root = services[0].root
    names = [service.name for service in services]
    env = {f"{service.name.upper()}_PORT": str(service.port) for service in services}
    # Two checkouts of one name must not share containers.
    env["COMPOSE_PROJECT_NAME"] = "spillway-" + hashlib.sha256(os.fsencode(root)).hexdigest()[:8]
    run("docker", "compose", "-f", str(COMPOSE_FILE), *arguments, *names, env=env)
