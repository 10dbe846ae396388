"""The command line of a Java server."""

from pathlib import Path

# What Netty and the brokers reach into by reflection and what Java 17 keeps shut.
OPENED = ("java.nio", "java.lang", "java.util", "jdk.internal.ref")


def java_server(main_class: str, classpath: str, home: Path, heap: str, *options: str) -> list[str]:
    """`home` takes what the server writes to the user's home directory: none of two processes may share one."""
    opens = [part for package in OPENED for part in ("--add-opens", f"java.base/{package}=ALL-UNNAMED")]
    return [
        "java", "-server", f"-Xms{heap}", f"-Xmx{heap}", "-XX:+UseG1GC", *options, *opens,
        "--add-exports", "java.base/sun.nio.ch=ALL-UNNAMED", "-Dio.netty.tryReflectionSetAccessible=true",
        f"-Duser.home={home}", "-cp", classpath, main_class,
    ]  # fmt: skip
