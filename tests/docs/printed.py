"""Prints what commands print in the world of the pages, for who writes one:

python -m rollbook.tests.docs.printed 'rollbook audit --run my-run' 'rollbook ledger --run my-run --state rewarded'
"""

import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from rollbook.infra.broker import EmbeddedBroker
from rollbook.tests.docs.commands import end_staying, served
from rollbook.tests.docs.shell import Shell
from rollbook.tests.docs.world import furnish, shared_world


def main(commands: list[str]) -> None:
    with TemporaryDirectory() as name, EmbeddedBroker() as broker:
        folder = Path(name)
        with served(folder / "commands") as programs, shared_world(broker.bootstrap_servers, folder / "world") as world:
            furnish(folder / "page", world.files)
            shell = Shell(folder / "page", folder / "own", programs, world.environment(folder / "data"))
            for command in commands:
                answer = shell.run(world.meant(command))
                print(
                    f"$ {command}", world.as_on_pages(answer.output), f"(exit code {answer.code})", sep="\n", flush=True
                )
            end_staying(folder / "own")


if __name__ == "__main__":
    main(sys.argv[1:])
