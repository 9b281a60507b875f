"""Processes on this machine that solve: one program of its own each, ended with whoever started it."""
