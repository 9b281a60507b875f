"""Text, tables and progress for people. Reads documents, computes nothing."""
