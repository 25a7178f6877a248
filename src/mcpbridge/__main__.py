"""`python -m mcpbridge` is the `mcpbridge` command."""

import sys

from mcpbridge.cli.main import main

sys.exit(main())
