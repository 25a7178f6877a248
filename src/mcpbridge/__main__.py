"""`python -m mcpbridge` is the `mcpbridge` command."""

import sys

from mcpbridge.app.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
