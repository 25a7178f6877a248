"""What the doctor finds of the running bridge, for the overview: examined when somebody asks, and remembered.

It is `mcpbridge doctor --no-start`: nothing is started, and what takes long runs in threads.
"""

import asyncio
import os
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from mcpbridge.app.doctor.examination import Examiner
from mcpbridge.app.doctor.finding import Finding
from mcpbridge.base.errors import BridgeError
from mcpbridge.base.log import get_logger
from mcpbridge.base.masking.known_values import Redactor
from mcpbridge.config.load import Loaded
from mcpbridge.library.bridge import Bridge

log = get_logger("mcpbridge.console")

_PATIENCE = 120.0
"""Seconds that an examination may take."""


class DoctorFindings:
    """The last examination of a bridge."""

    def __init__(self, bridge: Bridge, redact: Redactor, *, changed: Callable[[], None]) -> None:
        """`changed` is called when an examination begins or ends."""
        self._bridge, self._redact, self._changed = bridge, redact, changed
        self._task: asyncio.Task[None] | None = None
        self.findings: Sequence[Finding] = ()
        """The gravest first, without those that say that all is well."""
        self.at = 0.0
        """Seconds since 1970, when it was done; 0: never."""
        self.problem = ""
        """Why the last one failed."""

    def __repr__(self) -> str:
        return f"<DoctorFindings {len(self.findings)}{' examining' if self.is_examining else ''}>"

    @property
    def is_examining(self) -> bool:
        """One is under way."""
        return self._task is not None and not self._task.done()

    @property
    def has_looked(self) -> bool:
        """One was made or begun, whatever came of it."""
        return self._task is not None

    def examine(self) -> None:
        """Begin another examination, unless one is under way."""
        if not self.is_examining:
            self._task = asyncio.create_task(self._examine())
            self._changed()

    def end(self) -> None:
        """The bridge stops, and with it what is under way."""
        if self._task is not None:
            self._task.cancel()

    async def _examine(self) -> None:
        self.problem = ""
        try:
            async with asyncio.timeout(_PATIENCE):
                settings = self._bridge.settings
                examiner = Examiner(
                    os.environ, home=Path.home(), platform=sys.platform, project=None, redact=self._redact
                )
                enabled = {name: server for name, server in settings.servers.items() if not server.disabled}
                report = await examiner.ask(Loaded(settings), enabled)
            told = [one for one in report.findings if one.level != "ok"]
            self.findings = sorted(told, key=lambda one: _GRAVITY.index(one.level))
            self.at = time.time()
        except TimeoutError:
            self.problem = f"It took longer than {_PATIENCE:g} s."
        except BridgeError as error:
            self.problem = self._redact(error.full_message())
        except Exception as error:
            # Whatever is wrong with this machine must not end the page.
            log.error("the doctor failed", exc_info=error)
            self.problem = f"It failed: {type(error).__name__}. See the log."
        finally:
            asyncio.get_running_loop().call_soon(self._changed)  # when the task is done


_GRAVITY = ("fail", "warn", "note")
