"""Command line of a Java server."""

from pathlib import Path

# Packages that Netty and the brokers open by reflection and that Java 17 closes.
OPENED = ("java.nio", "java.lang", "java.util", "jdk.internal.ref")


def java_server(main_class: str, classpath: str, home: Path, heap: str, *options: str) -> list[str]:
    """Return the command line. The server uses `home` as the user's home directory; processes may not share one."""
    opens = [part for package in OPENED for part in ("--add-opens", f"java.base/{package}=ALL-UNNAMED")]
    return [
        "java", "-server", f"-Xms{heap}", f"-Xmx{heap}", "-XX:+UseG1GC", *options, *opens,
        "--add-exports", "java.base/sun.nio.ch=ALL-UNNAMED", "-Dio.netty.tryReflectionSetAccessible=true",
        f"-Duser.home={home}", "-cp", classpath, main_class,
    ]  # fmt: skip
