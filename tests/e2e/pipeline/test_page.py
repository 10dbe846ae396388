"""The page about Spark, docs/spark.md: its commands as they stand, beside a `penstock up` on its default ports."""

import os
import sys

import pytest

from tests.e2e.test_pages import Pages, network  # noqa: F401 (a fixture)

pytestmark = pytest.mark.slow

BEFORE = """
penstock topic create orders payments orders-again --queues 2
for n in 1 2 3; do
  penstock send orders "{\\"n\\": $n}" --tag large --property shop=s1
  penstock send payments "{\\"n\\": $n}"
done
penstock group create readers --topic orders
penstock message tail orders --last 10 -o json | python -c '
import json, sys
import pyarrow, pyarrow.parquet
rows = [{"id": json.loads(line)["id"]} for line in sys.stdin]
open("sent.jsonl", "w").writelines(json.dumps(row) + "\\n" for row in rows)
pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), "sent.parquet")'
"""


def test_the_commands_of_the_page_work_as_pasted(network, tmp_path):  # noqa: F811
    path = f"{sys.prefix}/bin:{os.environ['PATH']}"
    done = Pages(network, tmp_path).run(
        "docs/spark.md", before=BEFORE, places={"/srv/archive": str(tmp_path / "archive")}, within_s=900, PATH=path
    )
    assert (tmp_path / "r" / "report.md").exists() and (tmp_path / "r" / "traffic.html").exists(), done.stdout
