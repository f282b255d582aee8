"""python -m tests.services up|down|status|env|prerequisites [NAME ...]"""

import argparse
import sys
import time

from tests.services import prerequisites, supervisor
from tests.services.supervisor import NAMES

DESCRIPTION = "Real servers for the tests, started as background processes (or by Docker where it runs)."


def main() -> int:
    arguments = parse()
    return COMMANDS[arguments.command](arguments)


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.services", description=DESCRIPTION)
    parser.add_argument("command", choices=COMMANDS)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(NAMES)}; default: all")
    parser.add_argument("--wipe", action="store_true", help="down: remove the data as well")
    arguments = parser.parse_args()
    unknown = set(arguments.names) - set(NAMES)
    if unknown:
        parser.error(f"no such service: {', '.join(sorted(unknown))} (there are {', '.join(NAMES)})")
    return arguments


def up(arguments: argparse.Namespace) -> int:
    began = time.monotonic()
    outcomes = supervisor.up(arguments.names)
    for outcome in outcomes:
        if outcome.reason:
            print(f"{outcome.service.name}: {outcome.reason}", file=sys.stderr)
    env(arguments)
    print(f"# {time.monotonic() - began:.1f} s; stop them with: make services-down", file=sys.stderr)
    required = set(arguments.names) | supervisor.required()
    return int(any(outcome.reason and outcome.service.name in required for outcome in outcomes))


def down(arguments: argparse.Namespace) -> int:
    stopped = supervisor.down(arguments.names, wipe=arguments.wipe)
    print(f"stopped: {', '.join(stopped) or 'nothing was running'}")
    return 0


def status(arguments: argparse.Namespace) -> int:
    for service in supervisor.chosen(arguments.names):
        by = f"process {service.process.pid}" if service.process.pid else "a container"
        print(f"{service.name:10} {f'up, {by}, {service.address}' if service.running() else 'down'}")
    return 0


def env(arguments: argparse.Namespace) -> int:
    for name, value in supervisor.addresses().items():
        print(f"{name}={value}")
    return 0


def prepare(arguments: argparse.Namespace) -> int:
    prerequisites.install()
    return 0


COMMANDS = {"up": up, "down": down, "status": status, "env": env, "prerequisites": prepare}

if __name__ == "__main__":
    sys.exit(main())
