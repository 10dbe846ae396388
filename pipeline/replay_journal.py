"""The journal of a replay: when it first began, so that a repetition after the target's window of ids is refused."""

import json
from pathlib import Path

from pipeline.errors import PipelineError


class ReplayJournal:
    """A file with what is replayed and since when. It is written before the first message is sent.

    Args:
        what: source, target and kind of ids; a journal of another replay is refused.
    """

    def __init__(self, path: str, what: dict[str, str]) -> None:
        self._path, self._what = Path(path), what

    def began_ms(self, now_ms: int) -> int:
        """When this replay first began: now, unless the file tells.

        Raises:
            PipelineError: the file is of another replay, no journal, or cannot be written.
        """
        try:
            if not self._path.exists():
                work = self._path.with_name(self._path.name + ".new")
                work.write_text(json.dumps({"replay": self._what, "began_ms": now_ms}))
                work.replace(self._path)
                return now_ms
            found = json.loads(self._path.read_text())
            what, began_ms = found["replay"], int(found["began_ms"])
        except OSError as error:
            raise PipelineError(f"journal {self._path}: {error.strerror}: use a file that can be written") from error
        except (ValueError, KeyError, TypeError) as error:
            raise PipelineError(f"journal {self._path}: is no journal of a replay: use another file") from error
        if what != self._what:
            raise PipelineError(f"journal {self._path}: is of the replay {what}: use another file")
        return began_ms


def check_repetition(topic: str, began_ms: int, now_ms: int, window_s: float | None, path: str) -> None:
    """Raise PipelineError when a repetition would store messages twice, whose ids are no longer recognised."""
    age_s = (now_ms - began_ms) / 1000
    if age_s <= 0:
        return
    if window_s is None:
        raise PipelineError(
            f"journal {path}: the replay began {age_s:.0f} s ago, and the window of ids of topic {topic} is not known: "
            "name a consumer proxy with --window-endpoint, and grant the application to pull from the topic"
        )
    if age_s > window_s:
        raise PipelineError(
            f"journal {path}: the replay began {age_s:.0f} s ago, and topic {topic} recognises an id for {window_s:g} s: "
            "messages that it has stored would be stored twice: remove the journal to replay all the same"
        )
