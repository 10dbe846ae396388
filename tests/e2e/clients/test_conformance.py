"""Every client, and generated code alone, through the same cases; clients/conformance/README.md.

The languages run beside each other, each by one driver program for all its cases, as the cases mostly wait.
PENSTOCK_WRITE_CONFORMANCE=1 writes the table of that page from the run.
"""

import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.clients.conformance import contents, deadlines, foreign, links, pulling, sending, sending_batches  # noqa: F401 (they define the cases)
from tests.e2e.clients.conformance.client import CASES, STUB, Client
from tests.services import thrift_toolchains
from tests.services.fake_penstock import FakePenstock

PAGE = Path(__file__).resolve().parents[3] / "clients" / "conformance" / "README.md"
TABLE = "\n## Table\n"
LANGUAGES = (*thrift_toolchains.LANGUAGES, STUB)
RUNS = [(language, each) for language in LANGUAGES for each in CASES if language not in CASES[each].without]
CASE_S = 60.0


class LanguageRun(threading.Thread):
    """The chosen cases of one language, one after another. A failed case costs its driver program: the next has a new one."""

    def __init__(self, language: str, sentences: list[str]) -> None:
        super().__init__(daemon=True)
        self._language, self._sentences = language, sentences
        self._ended = {each: threading.Event() for each in sentences}
        self._failures: dict[str, BaseException] = {}

    def run(self) -> None:
        client = Client(self._language)
        for sentence in self._sentences:
            try:
                with FakePenstock(producers=2, consumers=2) as fake:
                    CASES[sentence].check(fake, client.on(fake))
                    client.close()
            except BaseException as failure:
                self._failures[sentence] = failure
                client.kill()
                client = Client(self._language)
            self._ended[sentence].set()
        if client.end() != 0:
            self._failures[self._sentences[-1]] = AssertionError(
                "the program did not end with code 0 at its input's end"
            )

    def wait(self, sentence: str) -> None:
        """Raises what the case raised."""
        assert self._ended[sentence].wait(CASE_S), f"{self._language}: the case does not end"
        if sentence in self._failures:
            raise self._failures[sentence]

    def has_passed(self, sentence: str) -> bool:
        return self._ended[sentence].is_set() and sentence not in self._failures


@pytest.fixture(scope="module")
def runs(request) -> Iterator[dict[str, LanguageRun]]:
    """The runs of the chosen tests; of a language without tool chain there is none."""
    chosen: dict[str, list[str]] = {}
    for item in request.session.items:
        if item.module is request.module:
            chosen.setdefault(item.callspec.params["language"], []).append(item.callspec.params["sentence"])
    made = {}
    for language, sentences in chosen.items():
        if language == STUB or thrift_toolchains.can_build(language):
            made[language] = LanguageRun(language, sentences)
            made[language].start()
    yield made
    for run in made.values():
        run.join(CASE_S)
    if os.environ.get("PENSTOCK_WRITE_CONFORMANCE"):
        before = PAGE.read_text().split(TABLE)[0]
        PAGE.write_text(f"{before}{TABLE}\n{_table(made)}")


def _table(runs: dict[str, LanguageRun]) -> str:
    def cell(language: str, sentence: str) -> str:
        if (language, sentence) not in RUNS:
            return "–"
        return "yes" if language in runs and runs[language].has_passed(sentence) else "**no**"

    rows = [["case", *LANGUAGES], ["---"] * (1 + len(LANGUAGES))]
    rows += [[each, *(cell(language, each) for language in LANGUAGES)] for each in CASES]
    return "".join(f"| {' | '.join(cells)} |\n" for cells in rows)


@pytest.mark.parametrize(("language", "sentence"), RUNS)
def test_the_client_conforms(runs: dict[str, LanguageRun], language: str, sentence: str):
    if language != STUB:
        thrift_toolchains.build(language)
    runs[language].wait(sentence)
