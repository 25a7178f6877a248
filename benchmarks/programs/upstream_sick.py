"""A server that is no good.

upstream_sick.py crash      ends at once with an error
upstream_sick.py mute       reads everything and never answers
"""

import os
import sys

if __name__ == "__main__":
    if sys.argv[1] == "crash":
        sys.exit("no licence found")
    while os.read(0, 1 << 16):
        pass
