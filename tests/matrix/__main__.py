"""Write the table of the matrix into docs/reference/matrix.md, between its marks.

PYTHONPATH=tests python -m matrix --write
"""

import sys

from matrix.report import PAGE, in_markdown, shown

if __name__ == "__main__":
    if sys.argv[1:] == ["--write"]:
        PAGE.write_text(shown(PAGE.read_text("utf-8")), "utf-8")
    else:
        print(in_markdown())
