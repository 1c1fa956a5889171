"""`python -m rollbook.infra.broker.resolve`, called by `make lock`: resolves kafka.toml and writes the lock.

The only step that trusts what it is sent: look at the difference before committing it.
"""

from pathlib import Path
from tempfile import TemporaryDirectory

from jgo.env import EnvironmentBuilder, EnvironmentSpec
from jgo.maven import MavenContext

from rollbook.infra.broker.lock import LOCK_PATH, read_lock

_SPEC = Path(__file__).with_name("kafka.toml")


def main() -> None:
    with TemporaryDirectory() as folder:
        # Resolved in an empty repository, so that nothing which happens to lie in the user's one gets a hash.
        context = MavenContext(repo_cache=Path(folder) / "repository", local_repos=[])
        builder = EnvironmentBuilder(context=context, cache_dir=Path(folder) / "environments")
        builder.resolve_lockfile(EnvironmentSpec.load(_SPEC)).save(LOCK_PATH)
    lock = read_lock()
    print(f"{LOCK_PATH.name}: Apache Kafka {lock.version}, {len(lock.jars)} jars")


if __name__ == "__main__":
    main()
