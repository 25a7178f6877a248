"""Servers whose calls become tasks: `tasks_upstream.py legacy|modern [http]`; otherwise as `asking.py`.

The tool `job` runs as a task always (`maybe`: if it is asked to; the modern one decides by itself, and has `job` only).
Its argument `steps` says what each look at the task (`tasks/get`) finds, so nothing ever happens by the clock:

    {"say": TEXT}             still working; a step without anything says nothing
    {"ask": {KEY: QUESTION}}  input is required, until every question is answered; looks find nothing else meanwhile
    {"progress": NUMBER}      progress of the call that made the task (legacy), and still working
    {"result": RESULT}        completed; legacy: failed, if it has `isError`
    {"error": ERROR}          failed
    {"cancelled": TEXT}       cancelled by the server itself
    {"forget": true}          the task is not known any more
    {"stay": true}            working, for ever

When no step is left it is completed with the answers that it got. Further arguments: `ttl` and `poll` in milliseconds;
`announces`: each look is told of beside requests too; `early`: the questions of the first step are sent with the answer
that makes the task, not on the stream of `tasks/result`; `nameless`: they do not name the task; `late_result`: the
result cannot be waited for; `first`: an `input_required` result before there is a task (modern). Standard library only.
"""

import http.server
import itertools
import json
import os
import signal
import sys
import threading
from typing import Any

from asking import Handler, Message, Send, note
from modern import Modern
from plain import Result, Server, text, tool

RELATED = "io.modelcontextprotocol/related-task"
TASKS = "io.modelcontextprotocol/tasks"
ENDED = ("completed", "failed", "cancelled")


class Job:
    """One task."""

    numbers = itertools.count(1)

    def __init__(self, arguments: Message, token: object = None) -> None:
        self.id = f"job-{next(self.numbers)}"
        self.arguments, self.token = arguments, token
        self.steps: list[Message] = list(arguments.get("steps", []))
        self.status, self.message = "working", ""
        self.asking: Message = {}
        self.answers: Message = {}
        self.outcome: Message = {}
        self.waiters: list[tuple[object, Send]] = []
        """Requests for the result."""

    @property
    def has_ended(self) -> bool:
        return self.status in ENDED

    def look(self) -> Message:
        """Take the next step; returns it."""
        if self.asking or self.has_ended:
            return {}
        if not self.steps:
            self.end("completed", result=text(json.dumps(self.answers)))
            return {}
        step = self.steps[0]
        if "stay" in step:
            return step
        self.steps.pop(0)
        self.message = step.get("say", self.message)
        if "ask" in step:
            self.status, self.asking = "input_required", dict(step["ask"])
        elif "result" in step:
            self.end("completed", result=step["result"])
        elif "error" in step:
            self.end("failed", error=step["error"])
        elif "cancelled" in step:
            self.message = step["cancelled"]
            self.end("cancelled")
        return step

    def end(self, status: str, **outcome: Any) -> None:
        self.status, self.outcome, self.asking = status, outcome, {}

    def answer(self, key: str, answer: Any) -> None:
        """One question is answered."""
        if self.asking.pop(key, None) is not None:
            self.answers[key] = answer
            if not self.asking:
                self.status = "working"

    def state(self, suffix: str = "") -> Message:
        """What is said of it, but for its outcome."""
        said: Message = {"taskId": self.id, "status": self.status}
        if self.message:
            said["statusMessage"] = self.message
        said |= {"createdAt": "2026-01-01T00:00:00Z", "lastUpdatedAt": "2026-01-01T00:00:00Z"}
        said["ttl" + suffix] = self.arguments.get("ttl", 60_000)
        said["pollInterval" + suffix] = self.arguments.get("poll", 10)
        return said


class Jobs(Server):
    """Legacy: the client makes the tasks."""

    capabilities = {  # noqa: RUF012  # as in the base class
        "tools": {"listChanged": True},
        "tasks": {"list": {}, "cancel": {}, "requests": {"tools": {"call": {}}}},
    }

    def __init__(self, instance: object = None) -> None:
        super().__init__()
        job, maybe = tool("job", steps="array"), tool("maybe", steps="array")
        self.tools += [
            job | {"execution": {"taskSupport": "required"}},
            maybe | {"execution": {"taskSupport": "optional"}},
        ]
        self.jobs: dict[str, Job] = {}
        self.questions: dict[str, tuple[Job, str]] = {}
        self.instance = instance or os.getpid()

    def take(self, line: bytes) -> None:
        note(self.instance, line)
        super().take(line)
        message = json.loads(line)
        if "method" not in message and (found := self.questions.pop(str(message["id"]), None)):
            job, key = found
            job.answer(key, message.get("result", {"error": message.get("error")}))
        with Handler.lock:
            Handler.said.notify_all()

    def on_tools_call(self, id_: object, params: Message) -> Result | None:
        if params["name"] not in ("job", "maybe"):
            return super().on_tools_call(id_, params)
        if "task" not in params:
            if params["name"] == "maybe":
                return text("at once")
            self.refuse(id_, -32601, "it runs as a task only")
            return None
        arguments = params["arguments"]
        job = Job(arguments, (params.get("_meta") or {}).get("progressToken"))
        self.jobs[job.id] = job
        if arguments.get("early"):
            job.look()
        meta = {"io.modelcontextprotocol/model-immediate-response": "later", RELATED: {"taskId": job.id}}
        self.answer(id_, {"task": job.state(), "_meta": meta})
        if arguments.get("early"):
            self.ask(job, self.send)
        return None

    def ask(self, job: Job, send: Send) -> None:
        """Send the questions that are open and were not sent yet."""
        sent = {key for other, key in self.questions.values() if other is job}
        for key, question in job.asking.items():
            if key not in sent:
                id_ = f"{job.id}-{key}"
                self.questions[id_] = job, key
                params = dict(question.get("params", {}))
                if not job.arguments.get("nameless"):
                    params["_meta"] = {RELATED: {"taskId": job.id}}
                send({"jsonrpc": "2.0", "id": id_, "method": question["method"], "params": params})

    def find(self, id_: object, params: Message) -> Job | None:
        job = self.jobs.get(params["taskId"])
        if job is None:
            self.refuse(id_, -32602, f"no such task: {params['taskId']}")
        return job

    def on_tasks_get(self, id_: object, params: Message) -> Result | None:
        job = self.find(id_, params)
        if job is None:
            return None
        step = job.look()
        if "forget" in step:
            del self.jobs[job.id]
            self.find(id_, params)
            return None
        if "progress" in step:
            self.notify("notifications/progress", progressToken=job.token, progress=step["progress"], message="real")
        if job.arguments.get("announces"):
            self.notify("notifications/tasks/status", **self.shown(job))
        for waiter, send in job.waiters:
            self.ask(job, send)
            if job.has_ended:
                self.tell_result(job, waiter, send)
        return self.shown(job)

    def shown(self, job: Job) -> Message:
        is_error = job.outcome.get("result", {}).get("isError")
        return {**job.state(), **({"status": "failed"} if is_error else {})}

    def on_tasks_result(self, id_: object, params: Message) -> None:
        job = self.find(id_, params)
        if job is None:
            return
        if job.has_ended:
            self.tell_result(job, id_, self.send)
        elif job.arguments.get("late_result"):
            self.refuse(id_, -32602, "not completed yet")
        else:
            job.waiters.append((id_, self.send))
            self.ask(job, self.send)

    def tell_result(self, job: Job, id_: object, send: Send) -> None:
        outcome = {"error": {"code": -32603, "message": "cancelled"}, **job.outcome}
        if "result" in outcome:
            del outcome["error"]
            outcome["result"] = {**outcome["result"], "_meta": {RELATED: {"taskId": job.id}, "own": 1}}
        send({"jsonrpc": "2.0", "id": id_, **outcome})

    def on_tasks_cancel(self, id_: object, params: Message) -> Result | None:
        job = self.find(id_, params)
        if job is None:
            return None
        if job.has_ended:
            self.refuse(id_, -32602, f"{job.id} is {job.status}")
            return None
        job.end("cancelled")
        return self.shown(job)


class ModernJobs(Modern):
    """Modern: the server makes tasks of calls as it likes."""

    def __init__(self) -> None:
        super().__init__()
        self.tools.append(tool("job", steps="array"))
        self.jobs: dict[str, Job] = {}
        self.told: dict[str, list[object]] = {}

    def take(self, line: bytes) -> None:
        note(os.getpid(), line)
        super().take(line)

    def on_server_discover(self, id_: object, params: Message) -> Result:
        found = super().on_server_discover(id_, params)
        found["capabilities"] |= {"extensions": {TASKS: {}}}
        return found

    def on_tools_call(self, id_: object, params: Message) -> Result | None:
        if params["name"] != "job":
            return super().on_tools_call(id_, params)
        declared = params["_meta"]["io.modelcontextprotocol/clientCapabilities"]
        if TASKS not in declared.get("extensions", {}):
            data = {"requiredCapabilities": {"extensions": {TASKS: {}}}}
            self.send({"jsonrpc": "2.0", "id": id_, "error": {"code": -32021, "message": "tasks", "data": data}})
            return None
        arguments = params["arguments"]
        if "first" in arguments and "inputResponses" not in params:
            return {"resultType": "input_required", "inputRequests": arguments["first"], "requestState": "s"}
        job = Job(arguments)
        job.answers |= params.get("inputResponses", {})
        self.jobs[job.id] = job
        return {"resultType": "task", **job.state("Ms")}

    def find(self, id_: object, params: Message) -> Job | None:
        job = self.jobs.get(params["taskId"])
        if job is None:
            self.refuse(id_, -32602, f"no such task: {params['taskId']}")
        return job

    def on_tasks_get(self, id_: object, params: Message) -> Result | None:
        job = self.find(id_, params)
        if job is None:
            return None
        if "forget" in job.look():
            del self.jobs[job.id]
            self.find(id_, params)
            return None
        for stream in self.told.get(job.id, []):
            self.notify_listener(stream, "notifications/tasks", **self.shown(job))
        return self.shown(job)

    def shown(self, job: Job) -> Message:
        asking = {"inputRequests": job.asking} if job.asking else {}
        return {**job.state("Ms"), **asking, **job.outcome}

    def on_tasks_update(self, id_: object, params: Message) -> Result | None:
        job = self.find(id_, params)
        if job is None:
            return None
        for key, answer in params["inputResponses"].items():
            job.answer(key, answer)
        return {}

    def on_tasks_cancel(self, id_: object, params: Message) -> Result | None:
        job = self.find(id_, params)
        if job is None:
            return None
        if not job.has_ended:
            job.end("cancelled")
        return {}

    def on_subscriptions_listen(self, id_: object, params: Message) -> None:
        for task in params["notifications"].get("taskIds", []):
            self.told.setdefault(task, []).append(id_)
        super().on_subscriptions_listen(id_, params)


class JobHandler(Handler):
    """One connection over HTTP."""

    def session_of(self, message: Message) -> str:
        session = super().session_of(message)
        with self.lock:
            self.server_for.setdefault(session, ModernJobs() if self.is_modern else Jobs(session))
        return session

    def stream(self, server: Server, message: Message, body: bytes, session: str) -> None:
        task = message["params"].get("taskId") if "params" in message else None
        if self.is_modern and task is not None and self.headers.get("mcp-name") != task:
            error = {"code": -32020, "message": f"Mcp-Name is {self.headers.get('mcp-name')!r}"}
            self.reply(400, json.dumps({"jsonrpc": "2.0", "id": message["id"], "error": error}).encode())
        else:
            super().stream(server, message, body, session)


def main() -> None:
    """Serve until standard input ends."""
    is_modern = "modern" in sys.argv
    if "http" not in sys.argv:
        (ModernJobs() if is_modern else Jobs()).run()
        return
    Handler.is_modern = is_modern
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), JobHandler)
    server.daemon_threads = True
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    print(f"http://127.0.0.1:{server.server_port}/mcp", flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    main()
