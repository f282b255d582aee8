"""Compiles the hashed requirement files from pyproject.toml, without the address of any index in them."""

import subprocess
import tempfile
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
OPTIONS = [
    "--quiet", "--upgrade", "--universal", "--python-version", "3.11", "--generate-hashes",
    "--no-emit-index-url", "--no-annotate", "--no-header",
]  # fmt: skip


def compile_file(source: str, target: str, *options: str) -> None:
    """Resolve `source` into `requirements/<target>.txt`."""
    output = ROOT / "requirements" / f"{target}.txt"
    subprocess.run(["uv", "pip", "compile", source, "-o", str(output), *OPTIONS, *options], cwd=ROOT, check=True)


def main() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    base = ["-c", "requirements/base.txt"]
    compile_file("pyproject.toml", "base")
    compile_file("pyproject.toml", "demo", "--extra", "demo", *base)
    compile_file("pyproject.toml", "test", "--extra", "test", *base)
    tested = [*base, "-c", "requirements/test.txt"]  # they share an environment with the tests
    production = ("postgres", "mysql", "cassandra", "anymail", "otel", "aws", "avro", "protobuf", "oidc")
    for extra in (*production, "docs", "release"):
        with tempfile.NamedTemporaryFile("w", suffix=".in") as file:
            file.write("\n".join(extras[extra]))
            file.flush()
            # Beside base, never above it: without this a driver of mail would bring a newer Django along.
            compile_file(file.name, extra, *(tested if extra in ("docs", "release") else base))


if __name__ == "__main__":
    main()
