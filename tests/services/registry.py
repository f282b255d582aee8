"""Apicurio Registry: a schema registry with Confluent's interface, from Maven Central, its schemas in memory."""

import re
import shutil
import socket
from pathlib import Path

from tests.services.packages import maven_archive
from tests.services.service import Service, Unavailable

VERSION = "3.3.3"
ARTIFACT = f"io.apicurio:apicurio-registry-app:{VERSION}:tar.gz:all"
SHA256 = "8bc6751c76d963734224b01d5e7f84ccb3cb61c87d3bd77c36c35f10a5cbed63"
OLDEST_JAVA = 21
FOLDERS = (Path("/usr/lib/jvm"), Path("/Library/Java/JavaVirtualMachines"))
API = "/apis/ccompat/v7"


class Registry(Service):
    name = "registry"
    variable = "TEST_REGISTRY_URL"
    first_port = 28081

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.port}{API}"

    def install(self) -> None:
        newest_java()
        self.program()

    def create(self, data: Path) -> None:
        data.mkdir()

    def command(self) -> list[str]:
        here = {"http.host": "127.0.0.1", "http.port": self.port, "management.host": "127.0.0.1", "management.port": 0}
        told = [f"-Dquarkus.{name}={value}" for name, value in here.items()]
        return [str(newest_java()), "-Xms64m", "-Xmx384m", *told, "-jar", str(self.program() / "quarkus-run.jar")]

    def greet(self, connection: socket.socket) -> bool:
        connection.sendall(f"GET {API}/subjects HTTP/1.0\r\n\r\n".encode())
        return connection.recv(12).endswith(b" 200")

    def program(self) -> Path:
        return maven_archive(f"apicurio-{VERSION}", ARTIFACT, SHA256)


def newest_java() -> Path:
    """The newest Java of this machine, which need not be the one that is called `java`."""
    found = [path.resolve() for folder in FOLDERS for path in folder.glob("*/**/bin/java")]
    found += [Path(java).resolve()] if (java := shutil.which("java")) else []
    version, newest = max(((version_of(java), java) for java in found), default=(0, Path()))
    if version < OLDEST_JAVA:
        raise Unavailable(f"needs Java {OLDEST_JAVA} or newer; the newest here is {version or 'none'}")
    return newest


def version_of(java: Path) -> int:
    """Its first number, which stands in a file beside its programs; 0 where it does not."""
    release = java.parents[1] / "release"
    known = re.search(r'^JAVA_VERSION="(\d+)', release.read_text(), re.MULTILINE) if release.exists() else None
    return int(known[1]) if known else 0
