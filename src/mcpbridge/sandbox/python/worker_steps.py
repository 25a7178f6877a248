"""One program in the interpreter: a step at a time, from one place where it waits for us to the next.

Part of a program's process (`worker_main.py`): the standard library only. Frames are as in `messages.py`; results come
in two, one that says whose it is, and the value itself.
"""

import json
import os
import time
from typing import IO, TYPE_CHECKING, Any, cast

if TYPE_CHECKING or __package__:
    from mcpbridge.sandbox.python.worker_values import encode_error, encode_value, value_of
else:  # no package is around it in the process of a program
    from worker_values import encode_error, encode_value, value_of


HEADER = 4
PRINTED = 1 << 20
"""Characters that are reported of what a program prints."""
LARGEST_ANSWER, LARGEST_ENCODED = 4 << 20, 16 << 20
"""Characters of a program's value, and of it as a string of JSON: less than the largest frame."""
MOST_NAMES, MOST_SLEEPS = 500, 300

_PIECE, _LAG = 1 << 16, 0.25
_BY_NAME, _TOOLS = "call_tool", "tools"

Json = dict[str, Any]


class Pipe:
    """Frames to and from the bridge."""

    def __init__(self, reader: IO[bytes], writer: IO[bytes]) -> None:
        self._reader, self._writer = reader, writer

    def send(self, kind: str, **fields: object) -> None:
        """Say something."""
        data = json.dumps({"kind": kind, **fields}, allow_nan=False).encode()
        self._writer.write(len(data).to_bytes(HEADER, "big") + data)
        self._writer.flush()

    def read(self) -> bytes:
        """The next frame."""
        return self._exactly(int.from_bytes(self._exactly(HEADER), "big"))

    def read_object(self) -> Json:
        """The next frame, which is one that the bridge has made itself."""
        return json.loads(self.read())

    def _exactly(self, size: int) -> bytes:
        data = self._reader.read(size)
        if len(data) < size:
            os._exit(0)  # the bridge has closed the pipe, or is dead
        return data


class Tools:
    """Stands for all tools in the program: `tools.x(…)`."""


class Output:
    """What the program prints, reported in few pieces."""

    def __init__(self, pipe: Pipe) -> None:
        self._pipe, self._room, self._left_out = pipe, PRINTED, 0
        self._parts: list[str] = []
        self._size, self._reported_at = 0, time.monotonic()

    def __call__(self, stream: str, text: str) -> None:
        """It prints."""
        kept = text[: self._room]
        self._room -= len(kept)
        self._left_out += len(text) - len(kept)
        if kept:
            self._parts.append(kept)
            self._size += len(kept)
            if self._size >= _PIECE or time.monotonic() - self._reported_at > _LAG:
                self.flush()

    def flush(self, *, is_last: bool = False) -> None:
        """Report what was printed so far."""
        if self._parts or (is_last and self._left_out):
            text = "".join(self._parts)
            for start in range(0, max(1, len(text)), _PIECE * 8):
                self._pipe.send("printed", text=text[start : start + _PIECE * 8])
            if is_last and self._left_out:
                self._pipe.send("printed", text="", left_out=self._left_out)
        self._parts.clear()
        self._size, self._reported_at = 0, time.monotonic()


class Program:
    """One program, from `run` to its end."""

    def __init__(self, monty: Any, session: Any, pipe: Pipe, calls: int) -> None:
        """`calls`: how many it may make."""
        self._monty, self._session, self._pipe = monty, session, pipe
        self._calls_left, self._sleeps_left, self._most_calls = calls, MOST_SLEEPS, calls
        self._output = Output(pipe)
        self._seen = 0
        self._results: dict[int, Json] = {}
        self._known: dict[str, bool] = {}

    def run(self, code: str) -> None:
        """Run it, and report the outcome."""
        monty = self._monty
        try:
            step = self._session.feed_start(code, print_callback=self._output)
            while not isinstance(step, monty.MontyComplete):
                step = self._after(step)
            text, shape = encode_value(step.output)
        except monty.MontyError as error:
            self._output.flush(is_last=True)
            self._pipe.send("failed", **encode_error(error))
            return
        except RuntimeError as error:  # it has gone to and fro too often
            self._output.flush(is_last=True)
            self._pipe.send("failed", what="RuntimeError", message=str(error)[:1000])
            return
        self._output.flush(is_last=True)
        if len(text) > LARGEST_ANSWER or len(json.dumps(text)) > LARGEST_ENCODED:
            message = f"the value has {len(text):,} characters, at most {LARGEST_ANSWER:,} are given: return less"
            self._pipe.send("failed", what="ValueError", message=message)
        else:
            self._pipe.send("done", text=text, shape=shape)

    def _after(self, step: Any) -> Any:
        """The next place where the program waits for us."""
        if isinstance(step, self._monty.NameLookupSnapshot):
            return self._named(step)
        if isinstance(step, self._monty.FutureSnapshot):
            return step.resume(self._answers(step.pending_call_ids))
        if step.is_os_function:
            return self._slept(step) if step.function_name in ("asyncio.sleep", "time.sleep") else _refused(step)
        return self._called(step)

    def _named(self, step: Any) -> Any:
        """A name that the program does not define, or a member of `tools`."""
        name = step.variable_name
        if step.object_id is None and name == _TOOLS:
            return step.resume(value=self._monty.ClassInstance(Tools()))
        if name != _BY_NAME and not self._is_known(name):
            return step.resume()

        def placeholder() -> None: ...

        placeholder.__name__ = name
        return step.resume(value=placeholder)

    def _is_known(self, name: str) -> bool:
        """Whether a tool is called so."""
        if name not in self._known:
            if len(self._known) >= MOST_NAMES:
                return False
            self._pipe.send("look", name=name)
            while (frame := self._pipe.read_object())["kind"] != "found":
                self._keep(frame)
            self._known[name] = bool(frame["known"])
        return self._known[name]

    def _called(self, step: Any) -> Any:
        name, args, kwargs = step.function_name, list(step.args), dict(step.kwargs)
        if name == _BY_NAME:
            names = [*args, kwargs.pop("name")] if not args and "name" in kwargs else args
            more = names[1] if len(names) > 1 else kwargs.pop("arguments", None)
            if not names or not isinstance(names[0], str) or len(names) > 2 or not isinstance(more, dict | None):
                return _raise(step, "TypeError", "use call_tool('name', {'argument': value, …})")
            name, args, kwargs = names[0], [], {**(cast("Json", more) or {}), **kwargs}
        elif not self._is_known(name):
            message = f"name {name!r} is not defined" if step.object_id is None else f"no tool is called {name!r}"
            return _raise(step, "NameError" if step.object_id is None else "AttributeError", message)
        if not self._calls_left:
            return _raise(step, "RuntimeError", f"no calls left: a program may make {self._most_calls}")
        try:
            arguments = json.dumps(kwargs, allow_nan=False)
        except (TypeError, ValueError, RecursionError) as error:
            return _raise(step, "TypeError", f"arguments of {name} must be JSON values: {_why(error)}")
        if len(arguments) > LARGEST_ANSWER:
            return _raise(step, "ValueError", f"the arguments of {name} are larger than {LARGEST_ANSWER >> 20} MiB")
        self._calls_left -= 1
        self._output.flush()
        self._pipe.send("call", id=step.call_id, name=name[:1000], arguments=kwargs, positional=len(args))
        return step.resume({"future": ...})

    def _slept(self, step: Any) -> Any:
        """The bridge waits instead of us: that is no time of computing."""
        seconds = step.args[0] if step.args and isinstance(step.args[0], int | float) else 0.0
        self._output.flush()
        if seconds > 0 and not self._sleeps_left:
            return _raise(step, "RuntimeError", f"a program may sleep {MOST_SLEEPS} times")
        if seconds > 0:
            self._sleeps_left -= 1
            self._pipe.send("sleep", id=step.call_id, seconds=min(float(seconds), 1e6))
        else:
            self._results[step.call_id] = {"return_value": None}
        if step.function_name == "asyncio.sleep":
            return step.resume({"future": ...})
        return step.resume(self._answers([step.call_id])[step.call_id])

    def _answers(self, pending: "list[int]") -> "dict[int, Json]":
        """At least one of these calls, answered."""
        while not (found := [call for call in pending if call in self._results]):
            self._output.flush()
            self._pipe.send("waiting", seen=self._seen)
            self._keep(self._pipe.read_object())
        return {call: self._results.pop(call) for call in found}

    def _keep(self, frame: Json) -> None:
        """A result, for when the program asks for it."""
        self._seen += 1
        if frame.get("error"):
            self._results[frame["id"]] = {"exc_type": frame["error"], "message": frame["message"]}
        else:
            value = value_of(self._pipe.read(), is_text_of_json=frame["parse"])
            self._results[frame["id"]] = {"return_value": value}


def _why(error: Exception) -> str:
    text = str(error).replace("Object of type ", "").replace(" is not JSON serializable", " is not one")
    return f"{text[:200]} (text, numbers, booleans, None, lists and dicts are)"


def _raise(step: Any, kind: str, message: str) -> Any:
    return step.resume({"exc_type": kind, "message": message})


def _refused(step: Any) -> Any:
    """Anything that has to do with the system."""
    if step.function_name == "import":
        return step.resume_not_handled()
    return _raise(step, "PermissionError", f"{step.function_name}: there are no files, network or environment here")
