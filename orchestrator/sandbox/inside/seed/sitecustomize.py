"""Stands in the standard library of the image's interpreter; every virtual environment of it
reads it too. See orch_seed.py."""

import sys

sys.path.append("/opt/orch/seed")
__import__("orch_seed")
