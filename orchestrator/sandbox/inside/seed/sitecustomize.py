"""Stands in the standard library of the image's interpreter; every virtual environment of it
reads it too. See orch_seed.py."""

import sys

# First while it is imported: no file on PYTHONPATH can stand in for it. Last from then on.
sys.path.insert(0, "/opt/orch/seed")
__import__("orch_seed")
sys.path.append(sys.path.pop(0))
