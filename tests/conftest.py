"""What all tests share: the asyncio backend, since the per-message path of the bridge uses asyncio directly."""

import gc
import itertools
import logging
import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import structlog
from hypothesis import HealthCheck, settings

from mcpbridge.base.log import Logger
from support.harness import Place
from support.programs import preloaded_bridge
from support.run_summary import WORDS
from support.shared_certificates import share_certificates

pytest_plugins = ["support.flaky_tests", "support.run_order"]

# How long an example takes is the machine's affair; other tests run beside it.
settings.register_profile("any machine", settings(), deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("any machine")

share_certificates()

# Whoever started the tests may ignore these (`nohup`, a shell's `&`), and what tests start would, too.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
if hasattr(signal, "SIGHUP") and signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
    signal.signal(signal.SIGHUP, signal.SIG_DFL)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Collect without looking for garbage.

    Modules and items stay to the end. To look through them again and again while they are made took half the time, and
    every test had its share of it. What tests leave behind is found as ever.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    return "asyncio"


_numbers = itertools.count()


@pytest.fixture(scope="session")
def _states(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("states")


@pytest.fixture(autouse=True)
def _own_state(_states: Path) -> None:
    """A bridge in the test process keeps its state apart from the developer's, and from that of other tests."""
    number = next(_numbers)
    os.environ["XDG_STATE_HOME"] = str(_states / str(number))
    os.environ["XDG_CACHE_HOME"] = str(_states / f"cache-{number}")
    os.environ["XDG_DATA_HOME"] = str(_states / f"data-{number}")


@pytest.fixture(autouse=True)
def _own_logs() -> Iterator[None]:
    """What a command in the test process sets up for its logs is not for the tests that follow.

    Its handler takes the lines of `logging` to our loggers; those of a bridge in a program go the other way.
    """
    root = logging.getLogger()
    level = root.level
    yield
    Logger.sink = None
    structlog.reset_defaults()
    for handler in root.handlers.copy():
        if type(handler).__module__.startswith("mcpbridge."):
            root.removeHandler(handler)
            root.setLevel(level)
            logging.captureWarnings(False)


@pytest.fixture(autouse=True)
def _own_interrupts() -> Iterator[None]:
    """What it makes of Ctrl-C is not for them either."""
    yield
    is_main = threading.current_thread() is threading.main_thread()
    if is_main and signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    """Where a test runs the real bridge; see `harness`."""
    place = Place(tmp_path)
    yield place
    place.clean()


# -- what is shown at the end. With `-n` the tests run in processes of their own, which hand their words over.


def pytest_configure(config: pytest.Config) -> None:
    config.stash[WORDS] = {}


def pytest_sessionfinish(session: pytest.Session) -> None:
    preloaded_bridge.end_all()
    if (handed_over := getattr(session.config, "workeroutput", None)) is not None:
        handed_over["closing_words"] = session.config.stash[WORDS]


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    node.config.stash[WORDS] |= getattr(node, "workeroutput", {}).get("closing_words", {})


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    for title, words in config.stash[WORDS].items():
        terminalreporter.section(title)
        terminalreporter.write_line(words)
