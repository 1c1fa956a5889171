"""The Java command line, with the cache that halves a node's start-up where it was made (`training.py`)."""

from rollbook.infra.broker.files import BrokerFiles

# Serial collector and first compiler only: half the start-up time and memory, and no throughput lost at our size.
_OPTIONS = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xmx256m", "-Djava.awt.headless=true")

# JDK 25 confuses two entries of the cache's adapter code, notices, and says so in the output: leave that part unused.
_NO_ADAPTERS = ("-XX:+UnlockDiagnosticVMOptions", "-XX:-AOTAdapterCaching")


def java_command(files: BrokerFiles, *arguments: str) -> list[str]:
    """`java` with our options and class path; the arguments are properties, the main class and its own arguments."""
    cache = (f"-XX:AOTCache={files.aot_cache}", *_NO_ADAPTERS) if files.aot_cache.exists() else ()
    return [str(files.java), *cache, *_OPTIONS, "-cp", files.class_path, *arguments]
