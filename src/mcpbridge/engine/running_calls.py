"""Calls under way, for people who look at them, and the end of one that a person cancels.

Calls that are recorded are known with the times of their stages; others that clients wait for are known as well, and
get a uid when somebody looks. Looking costs the one who looks; calls pay nothing for it.
"""

from time import perf_counter, time

from mcpbridge.core.model import Call
from mcpbridge.core.recording import Recording, RunningCall, new_uid, uid_text
from mcpbridge.engine.state import EngineState
from mcpbridge.pipeline.observability.call_records import running_call
from mcpbridge.storage.settings import Grade


class RunningCalls(EngineState):
    """The part of an `Engine` that reports calls under way."""

    @property
    def recording(self) -> Grade:
        """Which calls are recorded: `all`, as many as cost little (`history`), or none (`off`)."""
        return self.recorder.recorded.grade

    @property
    def keeps_content(self) -> bool:
        """Arguments and results of the user's own calls are kept, where the settings do not say otherwise of a tool."""
        return self.recorder.recorded.content

    def running_calls(self) -> list[RunningCall]:
        """All that are known, those that began first at the front."""
        calls, now = self._calls(), perf_counter()
        found = {call.uid: call for one in calls if (call := running_call(one, now)) is not None}
        return [found[uid] for uid in sorted(found)]

    def cancel_call(self, uid: str, who: str = "") -> bool:
        """Cancel a call under way: its client gets an error that says so, and its server is notified.

        `who`: by whom, for the call log. False: it is over, or is part of another call, which can be cancelled.
        """
        for call in self._calls():
            if call.recorded is not None and uid_text(call.recorded.uid) == uid and self.server.stop_call(call):
                facts = {
                    "tool": call.tool.id if call.tool is not None else "",
                    "server": call.upstream,
                    "client": call.caller.name,
                    "session": call.caller.session.id,
                    "who": who,
                    "uid": uid,
                }
                self.history.note("call.cancelled", facts)
                return True
        return False

    def _calls(self) -> list[Call]:
        """Those that are recorded, and the others that clients wait for."""
        known = {id(call): call for call in self.recorder.running()}
        for call in self.server.running_calls:
            if call.recorded is None:
                at = time()
                call.recorded = Recording(new_uid(at), at, perf_counter())
            known[id(call)] = call
        return [*known.values()]
