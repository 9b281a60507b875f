"""The room that tests of limits and interrupts leave a busy machine; speed itself is measured in benchmarks/."""

BUSY = 10.0  # seconds beyond what was asked; far below what the same solve takes when it does not listen
