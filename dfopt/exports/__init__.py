"""Mappings as other people's files: the arguments of tools that run training steps."""
