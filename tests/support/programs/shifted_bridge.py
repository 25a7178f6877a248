"""`mcpbridge`, in a process whose clocks are ahead by as many seconds as a file says; for tests of what takes hours.

The first argument is the file, the others are those of the program. Both clocks of Python that programs look at are
replaced before anything of the bridge is loaded: the product itself knows nothing of it.
"""

import sys
import time
from pathlib import Path

file = Path(sys.argv.pop(1))
wall, monotonic = time.time, time.monotonic


def ahead() -> float:
    return float(file.read_text("utf-8") or 0)


time.time = lambda: wall() + ahead()
time.monotonic = lambda: monotonic() + ahead()

from mcpbridge.app.cli.main import main  # noqa: E402 - after the clocks

if __name__ == "__main__":
    sys.exit(main())
