"""`python -m gpu_magic`."""

import sys

from gpu_magic.command_line import main

sys.exit(main())
