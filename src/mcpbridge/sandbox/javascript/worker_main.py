"""Run as a program: evaluate expressions that arrive on standard input, one after the other, until it ends.

    python -I -S worker_main.py ENGINE PARENT_PID LIMIT...

`ENGINE` is the file of the extension module: without site-packages nothing else can be imported. The limits are those
of `limits.py`, in the order of `for_worker`: a program that starts this way cannot import them. Before the first
expression the process gives up all that it does not need: files, further processes, most memory, its descriptors.

A message is a fixed number of fields; a field is any number of pieces (4 bytes of length, UTF-8 text that is whole),
then a length of zero. Asked: binding, expression, rows, text. Answered: kind, payload; once at the start as well.
Standard library only, and little of it: this is on the way to the first answer.
"""

import os
import sys
from importlib.machinery import ExtensionFileLoader, ModuleSpec
from typing import IO, Any

ASKED, ANSWERED = 4, 2
"""Fields of a message."""
PIECE = 1 << 18
"""Characters sent in one piece."""

_ADDRESS_SPACE = 1 << 30
_MOST_JOBS = 1_000_000
_PR_SET_PDEATHSIG, _PR_SET_NO_NEW_PRIVS = 1, 38
_SIGKILL = 9
_LONG_RUN, _MOST_RUNS = b"0" * 16, 100_000
_BEFORE_NUMBERS = (b"", b":", b",", b"[", b" ", b"\n", b"\r", b"\t")
_DIGITS = bytes(48 if 48 <= code <= 57 or code == 46 else code for code in range(256))


def pieces(text: str) -> "list[bytes]":
    """One field, ready to be written."""
    parts: list[bytes] = []
    for start in range(0, len(text), PIECE):
        data = text[start : start + PIECE].encode("utf-8", "replace")
        parts += (len(data).to_bytes(4, "big"), data)
    parts.append(bytes(4))
    return parts


def has_long_numbers(text: str) -> bool:
    """Whether there are numbers in this JSON that a double may not hold. Cheap for what has no long runs of digits."""
    data = text.encode("utf-8", "replace")
    digits = data.translate(_DIGITS)
    start = digits.find(_LONG_RUN)
    if start < 0:
        return False
    import re  # most results never come here

    run = re.compile(rb"0+")
    number = re.compile(rb"[0-9]{16}|(?:0\.0*+)?+[0-9](?:\.?[0-9]){17}")
    for _ in range(_MOST_RUNS):
        before = data[max(0, start - 2) : start]
        if before.removesuffix(b"-")[-1:] in _BEFORE_NUMBERS and number.match(data, start):
            return True
        found = run.match(digits, start)
        start = digits.find(_LONG_RUN, found.end() if found else start + 1)
        if start < 0:
            return False
    return True


def _read_field(stream: IO[bytes]) -> str:
    parts: list[str] = []
    while size := int.from_bytes(_exactly(stream, 4), "big"):
        parts.append(_exactly(stream, size).decode("utf-8", "replace"))
    return "".join(parts)


def _exactly(stream: IO[bytes], size: int) -> bytes:
    data = stream.read(size)
    if len(data) < size:
        os._exit(0)  # the bridge has closed the pipe, or is dead
    return data


def _engine(path: str) -> Any:
    loader = ExtensionFileLoader("_quickjs", path)
    module = loader.create_module(ModuleSpec("_quickjs", loader, origin=path))
    loader.exec_module(module)
    return module


def _give_up_rights(parent: int) -> None:
    os.closerange(3, 1 << 16)  # some ways to start a process pass on what is inheritable
    if sys.platform.startswith("linux"):
        try:
            import ctypes

            libc = ctypes.CDLL(None)
            libc.prctl(_PR_SET_PDEATHSIG, _SIGKILL, 0, 0, 0)
            libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
        except (ImportError, OSError, AttributeError):  # a Python built without it: the end of our input remains
            pass
    try:
        import resource
    except ImportError:  # Windows: the engine's own limits, and the bridge's clock
        return
    if os.getppid() != parent:
        os._exit(0)  # it died before we could ask for the signal
    limits = {"AS": _ADDRESS_SPACE, "NOFILE": 8, "FSIZE": 0, "NPROC": 0, "CORE": 0}
    for name, most in limits.items():
        try:
            resource.setrlimit(getattr(resource, f"RLIMIT_{name}"), (most, most))
        except (AttributeError, OSError, ValueError):  # macOS has no limit of the address space
            continue


class _Limits:
    def __init__(self, words: "list[str]") -> None:
        self.seconds, self.seconds_to_read = float(words[0]), float(words[1])
        self.largest_answer, self._memory, self._memory_per_character, self._most_memory = map(int, words[2:])

    def memory_for(self, characters: int) -> int:
        """Bytes that the engine may take for an input of this size."""
        return min(self._memory + self._memory_per_character * characters, self._most_memory)


def _limit_cpu(limits: _Limits) -> None:
    """Should even the bridge be stopped: an evaluation that goes on and on ends the process."""
    try:
        import resource

        used = resource.getrusage(resource.RUSAGE_SELF)
        most = int(used.ru_utime + used.ru_stime + 4 * (limits.seconds + limits.seconds_to_read)) + 1
        resource.setrlimit(resource.RLIMIT_CPU, (most, resource.RLIM_INFINITY))
    except (ImportError, OSError, ValueError):
        return


def _stack_size() -> int:
    try:
        import resource

        soft, _ = resource.getrlimit(resource.RLIMIT_STACK)
    except ImportError:
        return 256 << 10
    return min(2 << 20, soft // 4) if soft > 0 else 2 << 20


class _Evaluator:
    def __init__(self, engine: Any, prelude: str, limits: _Limits) -> None:
        self._engine, self._prelude, self._limits, self._stack = engine, prelude, limits, _stack_size()

    def answer(self, binding: str, expression: str, rows: str, text: str) -> tuple[str, str]:
        """Kind and payload.

        `value`; `large`: how many characters it would have; `error`: JSON of name, message, stack, lines before the
        source, shape of the result; `engine`: an error that no expression can catch; `unread`: the result is not
        what it should be.
        """
        context = self._engine.Context()
        try:
            context.set_memory_limit(self._limits.memory_for(len(text) + len(rows)))
            context.set_max_stack_size(self._stack)
            context.set_time_limit(self._limits.seconds_to_read)
            host = context.eval(self._prelude)
            if problem := self._bind(context, host, binding, expression, rows, text):
                return "unread", problem
            context.set_time_limit(self._limits.seconds)
            answer = host("run", expression)
            if answer == "?":
                answer = self._awaited(context, host)
        except MemoryError:
            return "engine", "out of memory"
        except Exception as error:  # noqa: BLE001 - whatever the engine raises: the next expression is another one
            return "engine", str(error)
        if answer[0] == "!":
            return "error", answer[1:]
        if len(answer) > self._limits.largest_answer:
            return "large", str(len(answer) - 1)
        if answer[0] == "0":
            return "value", answer[1:].replace("\x01a", "\0").replace("\x01b", "\x01")
        return "value", answer[1:]

    def _bind(self, context: Any, host: Any, binding: str, expression: str, rows: str, text: str) -> str:
        """What could not be read; empty: all is bound. Only what the expression names is."""
        json = {"json": text.lstrip("\ufeff"), "text": ""}.get(binding)
        if json is None:
            json = "[" + ",".join(line for line in text.split("\n") if line.strip()) + "]"
        try:
            for name, source in (("result", json), ("rows", rows if "rows" in expression else "")):
                if source and has_long_numbers(source):
                    host("bindExactly", name, source)
                elif source:
                    host("bind", name, context.parse_json(source))
        except self._engine.JSException as error:
            return str(error)
        if binding == "text":
            host("bind", "result", text)
        if "text" in expression:
            host("bind", "text", text)
        if "lines" in expression:
            host("splitLines", text)
        return ""

    def _awaited(self, context: Any, host: Any) -> str:
        from time import process_time

        until = process_time() + self._limits.seconds
        for _ in range(_MOST_JOBS):
            if not context.execute_pending_job():
                answer = host("outcome")
                return answer if answer != "?" else '!["Gave", "a promise that is never settled", "", 0, ""]'
            if process_time() > until:
                break
        raise self._engine.JSException("InternalError: interrupted")


def main() -> None:
    """Answer until standard input ends."""
    with open(f"{__file__.removesuffix('main.py')}prelude.js", encoding="utf-8") as file:
        prelude = file.read()
    reader, writer = sys.stdin.buffer, sys.stdout.buffer

    def send(*fields: str) -> None:
        for field in fields:
            writer.writelines(pieces(field))
        writer.flush()

    try:
        limits = _Limits(sys.argv[3:])
        evaluator = _Evaluator(_engine(sys.argv[1]), prelude, limits)
        evaluator.answer("json", "1", "", "[]")  # also loads what is imported late, while that is possible
        has_long_numbers("1" * 16)
        _give_up_rights(int(sys.argv[2]))
    except Exception as error:  # noqa: BLE001 - reported to whoever started us: it is the only one who can act on it
        send("failed", f"{type(error).__name__}: {error}")
        return
    send("ready", "")
    while True:
        binding, expression, rows, text = (_read_field(reader) for _ in range(ASKED))
        _limit_cpu(limits)
        send(*evaluator.answer(binding, expression, rows, text))


if __name__ == "__main__":
    main()
