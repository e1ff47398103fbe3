"""`python -m exporter` is the command `fabric-exporter`."""

import sys

from exporter.cli import main

sys.exit(main())
