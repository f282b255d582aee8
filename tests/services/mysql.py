"""MySQL, which Debian stable does not carry: the packages of unstable, unpacked beside the system."""

import os
import shutil
from pathlib import Path

from tests.services.mariadb import MariaDB
from tests.services.packages import CACHE, apt_update, run
from tests.services.service import Unavailable, locked

PROGRAMS = CACHE / "mysql"
CLIENTS = CACHE / "mysql-client"
KEYRING = Path("/usr/share/keyrings/debian-archive-keyring.gpg")

# An apt of its own: empty package status, own lists; mirror, proxy and certificates stay the machine's.
# Signatures are verified as always; only a mirror that lags a few days behind is not turned away.
APT_CONFIG = """\
Dir::State "{0}/state";
Dir::State::status "{0}/status";
Dir::Cache "{0}/cache";
Dir::Etc::sourcelist "{0}/sources.list";
Dir::Etc::sourceparts "-";
APT::Sandbox::User "root";
APT::Install-Recommends "false";
Acquire::Check-Valid-Until "false";
"""


class MySQL(MariaDB):
    name = "mysql"
    variable = "TEST_MYSQL_URL"
    first_port = 23307
    redo_log = "--innodb-redo-log-capacity=512M"

    def install(self) -> None:
        with locked(CACHE / "mysql.lock"):
            for programs, package in ((PROGRAMS, "mysql-server-core"), (CLIENTS, "mysql-client-core")):
                if not programs.exists():
                    unpack(programs, package)

    def create(self, data: Path) -> None:
        account = ["--user=root"] if os.geteuid() == 0 else []
        run(*self.server(), *account, f"--datadir={data}", "--initialize-insecure")

    def command(self) -> list[str]:
        # As MariaDB has it by default: counters that nobody reads here, on the way of every statement.
        return [*self.server(), *self.options(), "--performance-schema=OFF"]

    def server(self) -> list[str]:
        share = PROGRAMS / "usr/share/mysql"
        return [
            *loaded(PROGRAMS, "usr/sbin/mysqld"),
            *("--no-defaults", f"--basedir={PROGRAMS}/usr", f"--lc-messages-dir={share}"),
            # Without this option the server aborts, as Debian's default directory does not exist.
            *("--secure-file-priv=NULL", "--mysqlx=OFF"),
        ]


def loaded(programs: Path, name: str) -> list[str]:
    """A program, started by its own loader with its own libraries: unstable's C library is newer than ours."""
    loader = next(programs.glob("usr/lib*/ld-linux*.so.*"))
    libraries = next(programs.glob("usr/lib/*-linux-gnu*"))
    return [str(loader), "--library-path", f"{libraries}:{libraries}/private", f"{programs}/{name}"]


def unpack(programs: Path, package: str) -> None:
    """Let apt resolve and verify a package of unstable, then unpack it: no root, no chroot."""
    work = programs.with_name(f"{programs.name}.new")
    shutil.rmtree(work, ignore_errors=True)
    for directory in ("state/lists/partial", "cache/archives/partial", "root"):
        (work / directory).mkdir(parents=True)
    (work / "status").touch()
    (work / "sources.list").write_text(f"deb [signed-by={KEYRING}] {mirror()} sid main\n")
    (work / "apt.conf").write_text(APT_CONFIG.format(work))
    env = {"APT_CONFIG": str(work / "apt.conf")}
    run("apt-get", "update", "-q", env=env)
    run("apt-get", "install", "-y", "-q", "--download-only", package, env=env)
    for archive in sorted((work / "cache/archives").glob("*.deb")):
        run("dpkg-deb", "-x", str(archive), str(work / "root"))
    (work / "root").rename(programs)
    shutil.rmtree(work)


def mirror() -> str:
    """The Debian mirror this machine already uses."""
    if not shutil.which("apt-get") or not KEYRING.exists():
        raise Unavailable("comes from Debian unstable, and this machine is not Debian")
    if not known_mirrors() and os.geteuid() == 0:
        with locked(CACHE / "apt.lock"):
            apt_update()  # a fresh machine has no lists, and only they tell whose a source is
    if not known_mirrors():
        raise Unavailable("comes from Debian unstable, and no mirror of it is known (apt-get update as root)")
    return known_mirrors()[0]


def known_mirrors() -> list[str]:
    question = ["--format", "$(REPO_URI)", "Created-By: Packages", "Label: Debian"]
    return run("apt-get", "indextargets", *question).split()
