"""orch: finds out what local language models can build when nobody helps them."""

__version__ = "0.1.0"
