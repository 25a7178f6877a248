"""Print what the scanner of definitions finds: python scripts/scanner_figures.py [--data FOLDER] [--show].

Of the corpora in `tests/corpora`: how many poisoned texts are found and how many benign ones are flagged, by class, and
apart for the third that was held out while the rules were written. Of real catalogs: how many tools would be held at
`text_trust = "low"`. FOLDER (default: `$MCPBRIDGE_ROUTING_DATA`) holds a folder a set, with `tools.jsonl`.
"""

import argparse
import os
import sys
import time
from importlib import import_module
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tests"))


def main() -> int:
    """Print the figures."""
    corpora: Any = import_module("support.scanner_corpora")  # of the tests, which are not typed for others
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", metavar="FOLDER", help="sets of real tools (default: $MCPBRIDGE_ROUTING_DATA)")
    parser.add_argument("--show", action="store_true", help="also what was missed, and what was flagged wrongly")
    options = parser.parse_args()
    for corpus, word in (("poisoned", "found"), ("benign", "flagged")):
        for is_held_out in (False, True):
            some = (case for case in corpora.cases(corpus) if case.is_held_out is is_held_out)
            tally = corpora.Tally.count(some, is_poison=corpus == "poisoned")
            print(f"{corpus} texts that are {word}, {'held out' if is_held_out else 'seen'}:\n{tally}")
            if options.show:
                print("\n".join(f"    {case}" for case in tally.unlike))
    data = options.data or os.environ.get("MCPBRIDGE_ROUTING_DATA")
    if data:
        began = time.process_time()
        sets = list(corpora.RealTools.of_folder(Path(data)))
        count, flagged = sum(one.count for one in sets), sum(len(one.flagged) for one in sets)
        print('real tools that would be held at text_trust = "low":')
        for one in sets:
            print(one)
            if options.show:
                print("\n".join(f"    {line}" for line in one.flagged))
        if count:
            each = 1000 * (time.process_time() - began) / count
            print(f"  {'all':20} {flagged:4} of {count} ({flagged / count:.2%}), {each:.2f} ms of CPU time each")
    return 0


if __name__ == "__main__":
    sys.exit(main())
