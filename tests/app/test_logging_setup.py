"""Logs: on standard error only, without secrets, and never in the way of the work."""

import json
import logging
import os
import re
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import structlog
from structlog.testing import capture_logs

from mcpbridge.app.logging_setup import set_up_logs
from mcpbridge.base.log import Logger, get_logger
from mcpbridge.base.log_output import LineWriter
from mcpbridge.base.masking.known_values import Redactor
from mcpbridge.base.masking.mask import MASK
from mcpbridge.base.settings import LogSettings
from support.secret_texts import SECRETS


class Pipe:
    """Stands for standard error."""

    def __init__(self) -> None:
        self.reader, self.writer = os.pipe()

    def text(self) -> str:
        """What was written since the last look."""
        os.set_blocking(self.reader, False)
        try:
            return os.read(self.reader, 1 << 20).decode()
        except BlockingIOError:
            return ""


@pytest.fixture
def pipe() -> Iterator[Pipe]:
    pipe = Pipe()
    LineWriter.lost = 0
    yield pipe
    for descriptor in (pipe.reader, pipe.writer):
        try:
            os.close(descriptor)
        except OSError:
            pass
    Logger.sink = None
    structlog.reset_defaults()
    logging.basicConfig(handlers=[], force=True)
    logging.captureWarnings(False)
    LineWriter.lost = 0


def set_up(pipe: Pipe, *secrets: str, **settings: str) -> None:
    set_up_logs(LogSettings.model_validate(settings), Redactor(secrets), descriptor=pipe.writer)


def test_a_pipe_gets_one_json_object_a_line(pipe: Pipe) -> None:
    set_up(pipe)
    get_logger().info("upstream ready", upstream="time", tools=2)
    get_logger().warning("zwei\nZeilen", odd=object)
    first, second = map(json.loads, pipe.text().splitlines())
    assert (first["event"], first["upstream"], first["tools"], first["level"]) == ("upstream ready", "time", 2, "info")
    assert second["event"] == "zwei\nZeilen"
    assert first["timestamp"].endswith("Z")
    assert list(first) == ["upstream", "tools", "event", "level", "timestamp"]


@pytest.mark.parametrize("exc_info", ["handled", "error", "triple"])
def test_a_line_of_json_tells_where_an_error_arose(pipe: Pipe, exc_info: str) -> None:
    set_up(pipe)
    get_logger().error("none is handled", exc_info=True)
    try:
        raise ValueError("in the test")
    except ValueError as error:
        forms = {"handled": True, "error": error, "triple": (type(error), error, error.__traceback__)}
        get_logger().error("failed", exc_info=forms[exc_info])
    without, line = map(json.loads, pipe.text().splitlines())
    assert "exception" not in without
    assert line["exception"].startswith("Traceback (most recent call last):\n")
    assert line["exception"].endswith("\nValueError: in the test")
    assert "exc_info" not in line


def test_levels_of_libraries_count_as_the_nearest_below(pipe: Pipe) -> None:
    set_up(pipe)
    logging.getLogger("library").log(35, "between")
    logging.getLogger("library").critical("high")
    assert [json.loads(line)["level"] for line in pipe.text().splitlines()] == ["warning", "critical"]


def test_programs_that_use_the_library_get_lines_through_structlog() -> None:
    with capture_logs() as lines:
        get_logger("mcpbridge.part").warning("settings match no tool", note="x")
        try:
            raise ValueError("in the test")
        except ValueError:
            get_logger("mcpbridge.part").exception("failed")
    assert lines == [
        {"note": "x", "event": "settings match no tool", "log_level": "warning"},
        {"exc_info": True, "event": "failed", "log_level": "error"},
    ]


def test_people_can_ask_for_plain_lines(pipe: Pipe) -> None:
    set_up(pipe, format="console")
    get_logger().info("upstream ready", upstream="time")
    text = pipe.text()
    assert "upstream ready" in text
    assert "upstream=time" in text
    assert "\x1b" not in text  # no colours where there is no terminal


def test_what_is_below_the_level_is_not_written(pipe: Pipe) -> None:
    set_up(pipe, level="warning")
    get_logger().info("quiet")
    get_logger().warning("loud")
    assert [json.loads(line)["event"] for line in pipe.text().splitlines()] == ["loud"]


@pytest.mark.parametrize("form", ["json", "console"])
def test_secrets_are_masked_wherever_they_stand(pipe: Pipe, form: str) -> None:
    set_up(pipe, "hunter2-hunter2", format=form)
    log = get_logger()
    log.info("got hunter2-hunter2", key="hunter2-hunter2", deep={"in": ["hunter2-hunter2"]})
    try:
        raise ValueError("hunter2-hunter2")
    except ValueError:
        log.exception("failed")
    logging.getLogger("library").warning("hunter2-hunter2")
    text = pipe.text()
    assert text.count(MASK) >= 5
    assert "hunter2" not in text


def test_logs_and_warnings_of_libraries_come_the_same_way(pipe: Pipe) -> None:
    set_up(pipe)
    logging.getLogger("some.library").warning("careful, %s", "please")
    logging.getLogger("some.library").info("chatter")
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        warnings.warn("old", DeprecationWarning, stacklevel=1)
    first, second = map(json.loads, pipe.text().splitlines())
    assert (first["event"], first["logger"]) == ("careful, please", "some.library")
    assert second["logger"] == "py.warnings"


def test_a_reader_that_is_gone_stops_nothing(pipe: Pipe) -> None:
    set_up(pipe)
    os.close(pipe.reader)
    get_logger().info("nobody hears this")
    assert LineWriter.lost == 1


@pytest.mark.parametrize("format_", ["json", "console"])
def test_lines_tell_no_secret_whatever_names_it(tmp_path: Path, format_: Any) -> None:
    """Issue 18, 3: what looks like a secret is masked, also in a line of JSON, which stays JSON."""
    file = tmp_path / "log"
    with file.open("wb") as out:
        set_up_logs(LogSettings(format=format_, level="debug"), Redactor(["configured words"]), descriptor=out.fileno())
        for text, _ in SECRETS.values():
            get_logger("x").error("it failed", reason=text, details={"headers": {"X-Api-Key": "by-its-name-1"}})
        get_logger("x").error("it failed", pin=123456, reason="configured words")
    shown = re.sub(r"\d\d:\d\d:\d\d\.\d+", "", file.read_text())  # a fraction of a second may be the digits of one
    plain = [json.loads(line) for line in shown.splitlines()] if format_ == "json" else shown
    assert [name for name, (_, secret) in SECRETS.items() if secret in str(plain) or secret in shown] == []
    assert "configured words" not in shown
    assert "by-its-name-1" not in shown
