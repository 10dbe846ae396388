"""The programs, filled in for one topic, group and application. The secret comes from the environment, never from here."""

from pathlib import Path
from typing import NamedTuple

from common.names import is_name
from console.errors import InvalidForm

FOLDER = Path(__file__).parent


class Language(NamedTuple):
    """Title, and name of the file that a person pastes the program into."""

    title: str
    file: str


LANGUAGES = {
    "php": Language("PHP", "penstock_example.php"),
    "go": Language("Go", "penstock_example.go"),
    "cpp": Language("C++", "penstock_example.cc"),
    "java": Language("Java", "PenstockExample.java"),
    "python": Language("Python", "penstock_example.py"),
    "node": Language("Node", "penstock_example.js"),
}


class ClientPlace(NamedTuple):
    """Values that are filled into a program. Addresses are HOST:PORT, with commas between several."""

    producers: str
    consumers: str
    app: str
    key_id: str
    topic: str
    group: str


def example(language: str, place: ClientPlace) -> str:
    """The program in a language of LANGUAGES. Raises InvalidForm: a name that is none could end a text literal."""
    for field in ("app", "topic", "group"):
        if not is_name(getattr(place, field)):
            raise InvalidForm({field: "Invalid name."})
    text = (FOLDER / f"{language}.txt").read_text()
    for field, value in place._asdict().items():
        text = text.replace(f"@{field.upper()}@", value)
    return text
