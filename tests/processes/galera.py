"""Three nodes of Galera, MariaDB of the Debian packages, of which a test may kill some."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

from tests.crash import databases
from tests.crash.platform import free_port
from tests.crash.wire import wait_for
from tests.services.mariadb import FIRST_STATEMENTS, MariaDB
from tests.services.packages import apt_install
from tests.services.service import DATABASE, PASSWORD, USER

NUMBERS = (1, 2, 3)
PROVIDER = Path("/usr/lib/galera/libgalera_smm.so")
STATUS = "SHOW GLOBAL STATUS WHERE variable_name IN ('wsrep_cluster_size', 'wsrep_local_state_comment')"
# All nodes begin with a copy of the first one's data, so a donor sends write sets only. MariaDB asks for a script all the
# same: the one that joins says where it listens, and the donor tells it there what it has.
TRANSFER = """\
#!/bin/sh
while [ $# -gt 0 ]; do
  case "$1" in
    --role) role=$2; shift ;; --address) address=$2; shift ;; --datadir) data=$2; shift ;;
    --gtid) state=$2; shift ;; --bypass) bypass=1 ;;
  esac
  shift
done
if [ "$role" = joiner ]; then
  rm -f "$data/state"
  echo "ready $data/state"
  until [ -s "$data/state" ]; do [ -d "$data" ] || exit 1; sleep 0.1; done
  cat "$data/state"
else
  [ -n "$bypass" ] || exit 255
  echo "$state" > "$address.new" && mv "$address.new" "$address"
  echo "done $state"
fi
"""


class Nodes:
    """A cluster; leaving the `with` block ends it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.ports = {number: (free_port(), free_port(), free_port()) for number in NUMBERS}
        self.living: dict[int, subprocess.Popen[bytes]] = {}

    def __enter__(self) -> Nodes:
        if not PROVIDER.exists():
            apt_install("galera-4")
        self.folder.mkdir(parents=True, exist_ok=True)
        script = self.folder / "wsrep_sst_copy"
        script.write_text(TRANSFER)
        script.chmod(0o755)
        (self.folder / "first.sql").write_text(FIRST_STATEMENTS)
        server = MariaDB(self.folder)
        server.install()
        server.create(self._data(1))
        self._start(1, new=True)
        self.living.pop(1).terminate()
        wait_for(lambda: not (self._data(1) / "server.pid").exists(), 60, "the first node to end")
        for number in NUMBERS[1:]:
            shutil.copytree(self._data(1), self._data(number))
        for number in NUMBERS:
            self._start(number, new=number == 1)
        return self

    def __exit__(self, *exc_info: object) -> None:
        for number in list(self.living):
            self.kill(number)

    def url(self, number: int) -> str:
        return f"mysql://{USER}:{PASSWORD}@127.0.0.1:{self.ports[number][0]}/{DATABASE}"

    def kill(self, number: int) -> None:
        """SIGKILL."""
        process = self.living.pop(number)
        process.kill()
        process.wait()

    def start_again(self, number: int) -> None:
        """As the service of the package does: the node first looks how far its data goes, so that it receives the rest alone."""
        log = self.folder / f"{number}-recovery.log"
        subprocess.run([*self._command(number, new=False), "--wsrep-recover", f"--log-error={log}"], check=True)
        position = re.findall(r"Recovered position:\s*(\S+)", log.read_text())[-1]
        self._start(number, f"--wsrep-start-position={position}")

    def _data(self, number: int) -> Path:
        return self.folder / str(number)

    def _start(self, number: int, *options: str, new: bool = False) -> None:
        """Start a node, of a cluster of its own or of the one that runs, and wait until it is synced."""
        with (self.folder / f"{number}.log").open("ab") as output:
            self.living[number] = subprocess.Popen(
                [*self._command(number, new), *options], stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT,
                env={**os.environ, "PATH": f"{self.folder}:{os.environ['PATH']}"},
            )  # fmt: skip
        size = str(len(self.living))
        wait_for(lambda: self._state(number) == {size, "Synced"}, 120, f"node {number} to be synced", 0.2)

    def _state(self, number: int) -> set[str]:
        try:
            return {value for _name, value in databases.rows(self.url(number), STATUS)}
        except Exception:  # of whatever kind: nobody listens yet, or nobody lets us in
            return set()

    def _command(self, number: int, new: bool) -> list[str]:
        port, group, transfer = self.ports[number]
        others = ",".join(f"127.0.0.1:{others[1]}" for others in self.ports.values())
        provider = f"gmcast.listen_addr=tcp://127.0.0.1:{group};ist.recv_addr=127.0.0.1:{transfer};gcache.size=64M"
        return [
            "mariadbd", "--no-defaults", *(["--user=root"] if os.geteuid() == 0 else []),
            f"--datadir={self._data(number)}", f"--port={port}", "--bind-address=127.0.0.1", "--skip-name-resolve",
            "--socket=server.sock", "--pid-file=server.pid", f"--init-file={self.folder / 'first.sql'}",
            "--binlog-format=ROW", "--innodb-autoinc-lock-mode=2", f"--server-id={number}",
            "--character-set-server=utf8mb4", "--innodb-buffer-pool-size=256M", "--innodb-log-file-size=256M",
            "--max-connections=200", "--wsrep-on=ON", f"--wsrep-provider={PROVIDER}",
            f"--wsrep-cluster-address=gcomm://{'' if new else others}", f"--wsrep-node-name=node{number}",
            f"--wsrep-node-address=127.0.0.1:{group}", f"--wsrep-node-incoming-address=127.0.0.1:{port}",
            "--wsrep-sst-method=copy", f"--wsrep-provider-options={provider}",
        ]  # fmt: skip
