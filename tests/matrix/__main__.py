"""Write the table of the matrix into the README, between its marks.

PYTHONPATH=tests python -m matrix --write
"""

import sys

from matrix.report import README, in_readme, shown

if __name__ == "__main__":
    if sys.argv[1:] == ["--write"]:
        README.write_text(shown(README.read_text("utf-8")), "utf-8")
    else:
        print(in_readme())
