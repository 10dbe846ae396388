"""The command line that all example programs share.

The secret comes from the environment, where `ps` does not show it.
"""

import argparse
import os
import ssl
import sys

from penstock_client import Options


def parser(purpose: str) -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(description=purpose)
    made.add_argument("--endpoints", required=True, help="HOST:PORT[,HOST:PORT]")
    made.add_argument("--app", required=True)
    made.add_argument("--key-id", required=True)
    made.add_argument("--topic", required=True)
    made.add_argument("--buffered", action="store_true", help="buffered transport instead of framed")
    made.add_argument("--tls-ca", help="speak TLS and trust the certificate authorities in this PEM file")
    made.add_argument("--deadline-ms", type=int, default=30_000, help="for one call with all its retries")
    return made


def secret() -> str:
    return os.environ.get("PENSTOCK_SECRET") or sys.exit("set PENSTOCK_SECRET to the application's secret")


def options(arguments: argparse.Namespace, **more: int) -> Options:
    context = ssl.create_default_context(cafile=arguments.tls_ca) if arguments.tls_ca else None
    return Options(framed=not arguments.buffered, deadline_ms=arguments.deadline_ms, ssl_context=context, **more)
