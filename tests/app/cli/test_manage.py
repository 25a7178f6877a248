"""`manage`: management commands of tools, done by the bridges that run, or by one for this alone."""

import json
import os
import signal
import socket
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from support.harness import Command, Finished, Place
from support.programs.daemon_process import daemon

Run = Callable[..., Finished]

CODE = '''
import asyncio
import os
from mcpbridge.tools.packs import Pack

class Glossary:
    commands = {"reindex", "count", "fail", "nothing", "secrets", "cancel", "die", "meet"}

    def __init__(self):
        self.words = ["a"]

    def execute(self) -> list[str]:
        """The words."""
        return self.words

    def execute_command(self, name, data):
        if name == "fail":
            raise RuntimeError("no index, and the password is " + os.environ["GLOSSARY_KEY"])
        if name == "cancel":
            return cancelled()
        if name == "die":
            os._exit(1)
        if name == "meet":
            return meet(data["at"])
        if name == "secrets":
            return {os.environ["GLOSSARY_KEY"]: [{"in " + os.environ["GLOSSARY_KEY"]: 1}]}
        if name == "reindex":
            self.words = data["words"]
        return {"reindex": "indexed " + str(data.get("words")), "count": {"words": len(self.words)}}.get(name)

async def cancelled():
    """Waits for a task of its own that it cancelled."""
    work = asyncio.ensure_future(asyncio.sleep(10))
    work.cancel()
    await work

def meet(folder):
    """Returns once two have come."""
    try:
        os.mkdir(folder + "/first")
    except FileExistsError:
        open(folder + "/gate", "w").close()
        return "second"
    open(folder + "/gate").close()
    return "first"

async def greet(data):
    return "hello " + data["who"]

shelf = Pack(name="shelf", tools=[], commands={"greet": greet, "cancel": lambda data: cancelled()})
'''
TOOLS = """
packs = ["glossary_of_test:shelf"]

[tools.glossary]
executor_class = "glossary_of_test.Glossary"
description = "Words. ${GLOSSARY_KEY}"

[tools.today]
command = ["date"]
"""
UNUSABLE = """
[tools.lacks]
endpoint = "https://example.com/${NOT_SET_ANYWHERE}"

[tools.nobody-there]
grpc = "localhost:1"
"""
SECRET = "hunter2hunter2"


def written(folder: Path) -> Path:
    (folder / "glossary_of_test.py").write_text(CODE)
    path = folder / "servers.toml"
    path.write_text(TOOLS)
    return path


@pytest.fixture
def here(alone: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Runs a command where no bridge runs."""
    monkeypatch.setenv("MCPBRIDGE_CONFIG", str(written(tmp_path)))
    monkeypatch.setenv("GLOSSARY_KEY", SECRET)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.syspath_prepend(str(tmp_path))
    return alone


@pytest.fixture
def config(place: Place) -> Path:
    """What the bridges of the place run with."""
    path = written(place.folder)
    where = os.pathsep.join([str(place.folder), *filter(None, [os.environ.get("PYTHONPATH")])])
    place.env = {"PYTHONPATH": where, "GLOSSARY_KEY": SECRET, "MCPBRIDGE_CONFIG": str(path)}
    return path


@asynccontextmanager
async def over_http(place: Place, bridges: int) -> AsyncIterator[list[Command]]:
    """So many bridges, each on a port of its own, in order of their processes."""
    async with AsyncExitStack() as stack:
        started: list[Command] = []
        for _ in range(bridges):
            started.append(await stack.enter_async_context(place.started("serve", "--http", "127.0.0.1:0")))
            await started[-1].logged(r"http://127\.0\.0\.1:[1-9]\d*")
        yield sorted(started, key=lambda one: one.pid)


@contextmanager
def hanging(*commands: Command) -> Iterator[None]:
    """They do nothing meanwhile."""
    for one in commands:
        os.kill(one.pid, signal.SIGSTOP)
    try:
        yield
    finally:
        for one in commands:
            os.kill(one.pid, signal.SIGCONT)


async def test_the_bridges_that_run_do_it_and_keep_what_it_changed(place: Place, config: Path) -> None:
    """In the object that answers calls, not in one beside it."""
    async with daemon(place, config):
        done = await place.run("manage", "tools/glossary", "reindex", 'words=["x", "y", "z"]')
        assert (done.code, done.out, done.err) == (0, "indexed ['x', 'y', 'z']\n", "")
        counted = await place.run("manage", "glossary", "count", "--json")
        assert counted.code == 0
        document = json.loads(counted.out)
        assert document["ok"] is True
        assert [one["result"] for one in document["bridges"]] == [{"words": 3}]
        failed = await place.run("manage", "glossary", "fail")
        assert failed.code == 5
        assert "no index" in failed.err
        assert SECRET not in failed.err
        unknown = await place.run("manage", "glossary", "reindx")
        assert (unknown.code, "did you mean" in unknown.err) == (2, True), unknown.err
        greeted = await place.run("manage", "shelf", "greet", "who=Ann")
        assert (greeted.code, greeted.out) == (0, "hello Ann\n")
        secrets = await place.run("manage", "glossary", "secrets")
        assert json.loads(secrets.out) == {"[redacted]": [{"in [redacted]": 1}]}


async def test_a_command_whose_code_is_cancelled_from_within_fails_and_ends_no_bridge(
    place: Place, config: Path
) -> None:
    """It would pass for a cancellation of the daemon, and all clients would lose it without a word."""
    async with daemon(place, config) as command:
        for name in ("glossary", "shelf"):
            cancelled = await place.run("manage", name, "cancel")
            assert (cancelled.code, "CancelledError" in cancelled.err) == (5, True), cancelled.err
        counted = json.loads((await place.run("manage", "glossary", "count", "--json")).out)
        assert [one["pid"] for one in counted["bridges"]] == [command.pid]
        ended = await place.run("manage", "glossary", "die")
        assert ended.code == 7
        assert "it ended before it had answered; whether the command was done is not known" in ended.err
        await command.process.wait()


async def test_several_bridges_do_it_side_by_side_and_each_is_told(place: Place, config: Path) -> None:
    os.mkfifo(place.folder / "gate")
    async with over_http(place, 2) as (one, other):
        counted = await place.run("manage", "glossary", "count")
        lines = [f"process {one.pid}:", '{"words": 1}', f"process {other.pid}:", '{"words": 1}']
        assert (counted.code, counted.out.splitlines(), counted.err) == (0, lines, "")
        nothing = await place.run("manage", "glossary", "nothing")
        assert nothing.out.splitlines() == lines[::2]
        failed = await place.run("manage", "glossary", "fail")
        assert failed.code == 5
        assert [f"process {pid}: " in failed.err for pid in (one.pid, other.pid)] == [True, True]
        met = await place.run("manage", "glossary", "meet", f"at={place.folder}", "--json")
        document = json.loads(met.out)
        assert document["ok"] is True
        assert [bridge["pid"] for bridge in document["bridges"]] == [one.pid, other.pid]
        assert {bridge["result"] for bridge in document["bridges"]} == {"first", "second"}


async def test_a_bridge_that_hangs_is_told_and_no_other_is_started_in_its_place(place: Place, config: Path) -> None:
    async with over_http(place, 2) as (one, other):
        silent = f"process {one.pid} does not answer, so it is not known what it serves"
        with hanging(one):
            done = await place.run("manage", "glossary", "reindex", 'words=["x", "y"]')
            assert (done.code, done.out) == (0, "indexed ['x', 'y']\n")
            assert silent in done.err
        with hanging(one, other):
            nobody = await place.run("manage", "glossary", "count", "--json")
            assert (nobody.code, json.loads(nobody.out)) == (7, {"format": "manage/1", "ok": False, "bridges": []})
            assert silent in nobody.err
        counted = json.loads((await place.run("manage", "glossary", "count", "--json")).out)
        assert [bridge["result"] for bridge in counted["bridges"]] == [{"words": 1}, {"words": 2}]


async def test_while_the_daemon_hangs_nothing_is_done_elsewhere(place: Place, config: Path) -> None:
    """Else what came of it there would be lost with the daemon's error."""
    async with daemon(place, config) as command, over_http(place, 1):
        with hanging(command):
            refused = await place.run("manage", "glossary", "reindex", "words=[]")
            assert (refused.code, refused.out) == (7, "")
            assert f"the daemon of this configuration, process {command.pid}, does not answer" in refused.err
        counted = json.loads((await place.run("manage", "glossary", "count", "--json")).out)
        assert [bridge["result"] for bridge in counted["bridges"]] == [{"words": 1}] * 2


@contextmanager
def answering(directory: Path, config: Path, said: bytes) -> Iterator[None]:
    """A bridge with this configuration that tells its status, and then this; nothing: its status again."""
    status = json.dumps({"pid": os.getpid(), "config": str(config)}).encode()
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(directory / f"{os.getpid()}.sock"))
        listener.listen()

        def answer() -> None:
            for document in (status, said or status):
                connected, _ = listener.accept()
                with connected, suppress(OSError):  # of what is too large it takes a part
                    while connected.recv(65536):
                        pass
                    connected.sendall(document)

        answers = threading.Thread(target=answer)
        answers.start()
        yield
        answers.join()


@pytest.mark.parametrize(
    ("said", "code", "told"),
    [
        (b"", 4, "it did not take the command"),  # told its status: the request was not there in time
        (b"{", 7, "its answer cannot be read; whether the command was done is not known"),
        (b" " * (16 * 1024**2 + 1), 7, "its answer is larger than 16 MiB; whether the command was done is not known"),
    ],
)
def test_what_is_no_answer_is_never_taken_for_a_success(
    here: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: bytes, code: int, told: str
) -> None:
    with TemporaryDirectory(prefix="mcpb-") as runtime:  # a socket's path must be short
        monkeypatch.setenv("XDG_RUNTIME_DIR", runtime)
        directory = Path(runtime) / "mcpbridge"
        directory.mkdir(mode=0o700)
        with answering(directory, tmp_path / "servers.toml", said):
            finished = here("manage", "glossary", "nothing")
    assert (finished.code, finished.out, finished.err) == (code, "", f"mcpbridge: {told}\n")


def test_where_no_bridge_runs_one_does_it_that_is_there_for_this_alone(here: Run) -> None:
    done = here("manage", "glossary", "count")
    assert (done.code, json.loads(done.out)) == (0, {"words": 1})
    assert "no bridge runs" in done.err
    quiet = here("manage", "glossary", "count", "--json")
    assert (quiet.code, quiet.err) == (0, "")
    assert here("manage", "glossary", "nothing").out == "done\n"
    given = here("manage", "glossary", "reindex", "--data", '{"words": ["q"]}')
    assert given.out == "indexed ['q']\n"


@pytest.mark.parametrize(
    ("words", "code", "told"),
    [
        (["glossari", "count"], 2, "glossary"),
        (["glossary", "conut"], 2, "count"),
        (["today", "count"], 2, "Unknown management command: count"),
        (["glossary", "fail"], 5, "no index"),
        (["glossary", "cancel"], 5, "CancelledError"),
        (["shelf", "cancel"], 5, "CancelledError"),
        (["shelf", "great"], 2, "greet"),
        (["lacks", "refresh"], 5, "'tools/lacks': missing variable ${NOT_SET_ANYWHERE}"),
        (["nobody-there", "refresh"], 5, "UNAVAILABLE"),
        (["glossary", "count", "word"], 2, "--data"),
        (["glossary", "count", "--data", "[]"], 2, "--data: expected a JSON object"),
        (["glossary", "count", "--data", "{}", "a=b"], 2, "not both"),
        (["glossary", "count", f"a={'x' * 70_000}"], 2, "larger than 64 KiB"),
        (["glossary", "c" * 65_536], 2, "larger than 64 KiB"),
        (["glossary", "count", "--config", "nowhere.toml"], 2, "nowhere.toml"),
    ],
)
def test_what_cannot_be_done_is_told(here: Run, tmp_path: Path, words: list[str], code: int, told: str) -> None:
    with (tmp_path / "servers.toml").open("a") as config:
        config.write(UNUSABLE)
    for more in ([], ["--json"]):
        finished = here("manage", *words, *more)
        assert finished.code == code, finished.err
        assert told in finished.err + finished.out
        assert SECRET not in finished.err + finished.out
