"""Chaos: the real system is broken on purpose, by a seed, and then everything is counted.

    make chaos SEED=7        one seed, two minutes
    make chaos SEEDS=20      as many seeds, one after the other
    make chaos MINUTES=10    one long run, with five hundred users

`traffic` writes and reads over HTTP and keeps a journal of what was acknowledged; `faults` breaks
the processes of `deployment` meanwhile; then all is healed, and `checker` compares the database
with the journal by SQL. The checker imports nothing of the server: what it believes is its own.
"""
