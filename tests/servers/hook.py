"""A hook that is a program: `hook.py WHAT [MORE]`. Standard library only."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path


def main() -> None:
    """Do what the test wants."""
    what, *more = sys.argv[1:]
    if what == "deaf":  # it reads nothing and says nothing
        return
    if what == "crash":
        sys.exit("password=hunter2 and the model must not read this")
    if what == "hang":  # with a child that left the group, both known by their ids
        child = subprocess.Popen([sys.executable, "-ES", __file__, "sleep"], start_new_session=True)
        part = Path(more[0] + ".part")
        part.write_text(f"{os.getpid()} {child.pid}")
        part.rename(more[0])
        time.sleep(600)
    if what == "sleep":
        time.sleep(600)
    event = json.load(sys.stdin)
    if what == "keep":  # the events, one a line
        with Path(more[0]).open("a") as file:
            file.write(json.dumps(event) + "\n")
    elif what == "say":
        print(more[0])
    elif what == "add":  # a word to the text
        print(json.dumps({"arguments": {"text": event["arguments"]["text"] + more[0]}}))
    elif what == "huge":
        print('{"arguments": {"text": "' + "x" * (2 << 20) + '"}}', flush=True)
        time.sleep(600)
    elif what == "where":
        names = json.dumps([str(Path.cwd()), sorted(os.environ)])
        print(json.dumps({"result": names}))
    elif what == "leave":  # it answers, and leaves a child behind that holds its output open
        subprocess.Popen([sys.executable, "-ES", __file__, "sleep"])
        print(json.dumps({"result": "answered"}))


if __name__ == "__main__":
    main()
