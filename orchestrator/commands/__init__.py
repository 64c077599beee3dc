"""The commands, a module for what belongs together; `cli` gathers them."""
