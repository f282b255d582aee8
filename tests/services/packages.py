"""Where programs come from: Debian packages by apt-get, Java libraries by Maven."""

import functools
import hashlib
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from tests.services.service import Unavailable, locked

CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "spillway"
POLICY = Path("/usr/sbin/policy-rc.d")

POM = """<project>
  <modelVersion>4.0.0</modelVersion>
  <groupId>spillway</groupId><artifactId>services</artifactId><version>1</version><packaging>pom</packaging>
  <dependencies>
{dependencies}
  </dependencies>
</project>
"""
DEPENDENCY = """    <dependency>
      <groupId>{}</groupId><artifactId>{}</artifactId><version>{}</version>
    </dependency>"""


def apt_install(*names: str) -> None:
    """Install Debian packages; says in one line why it cannot."""
    wanted = " ".join(names)
    if not shutil.which("apt-get"):
        raise Unavailable(f"not installed, and there is no apt-get for {wanted}")
    if os.geteuid() != 0:
        raise Unavailable(f"not installed; needs root for: apt-get install {wanted}")
    with locked(CACHE / "apt.lock"), without_daemons():
        apt_update()
        patient = ["-o", "DPkg::Lock::Timeout=300"]
        run("apt-get", "install", "-y", "-q", "--no-install-recommends", *patient, *names)


@functools.cache
def apt_update() -> None:
    """Once per run. A foreign source that does not answer is no reason to stop: the install will tell."""
    with suppress(Unavailable):
        run("apt-get", "update", "-q")


@contextmanager
def without_daemons() -> Iterator[None]:
    """Debian starts what it installs; policy-rc.d forbids that as long as it is there."""
    if POLICY.exists():
        yield
        return
    POLICY.write_text("#!/bin/sh\nexit 101\n")
    POLICY.chmod(0o755)
    try:
        yield
    finally:
        POLICY.unlink()


def maven_libraries(name: str, artifacts: tuple[str, ...]) -> Path:
    """A directory with these artifacts (group:artifact:version) and all they need, fetched once."""
    libraries = CACHE / name
    with locked(CACHE / f"{name}.lock"):
        if not libraries.exists():
            fetch(libraries, artifacts)
    return libraries


def fetch(libraries: Path, artifacts: tuple[str, ...]) -> None:
    dependencies = "\n".join(DEPENDENCY.format(*artifact.split(":")) for artifact in artifacts)
    fetched(libraries, "copy-dependencies", dependencies=dependencies).rename(libraries)


def fetched(target: Path, goal: str, *options: str, dependencies: str = "") -> Path:
    """A directory beside `target` with what this goal of Maven's dependency plugin brings."""
    if not shutil.which("mvn"):
        raise Unavailable("needs Maven (mvn) to fetch the Java libraries")
    work = target.with_name(f"{target.name}.new")
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    (work / "pom.xml").write_text(POM.format(dependencies=dependencies))
    run("mvn", "-q", "-B", "-f", str(work / "pom.xml"), f"dependency:{goal}", f"-DoutputDirectory={work}", *options)
    return work


def maven_archive(name: str, artifact: str, sha256: str) -> Path:
    """A directory with what is in this archive (group:artifact:version:tar.gz:classifier), fetched and looked at once."""
    program = CACHE / name
    with locked(CACHE / f"{name}.lock"):
        if not program.exists():
            work = fetched(program, "copy", f"-Dartifact={artifact}")
            (archive,) = work.glob("*.tar.gz")
            if (found := hashlib.sha256(archive.read_bytes()).hexdigest()) != sha256:
                raise Unavailable(f"{archive.name} is not the one that was expected: its SHA-256 is {found}")
            shutil.unpack_archive(archive, work)
            archive.unlink()
            work.rename(program)
    return program


def require_java() -> None:
    missing = [program for program in ("java", "mvn") if not shutil.which(program)]
    if missing:
        apt_install("default-jre-headless", "maven")


def run(*command: str, env: dict[str, str] | None = None, told: str = "") -> str:
    """Run a preparing step quietly; when it fails, its last lines are the reason."""
    done = subprocess.run(
        command,
        input=told,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        env={**os.environ, "DEBIAN_FRONTEND": "noninteractive", **(env or {})},
        check=False,
    )
    if done.returncode != 0:
        last = "\n".join(f"  | {line}" for line in done.stdout.splitlines()[-15:])
        raise Unavailable(f"failed: {' '.join(command[:3])} … (exit {done.returncode})\n{last}")
    return done.stdout
