"""Runs in the gateway's container, as the top-level package `server`; imports nothing of ours."""
