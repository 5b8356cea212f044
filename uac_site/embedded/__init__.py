"""A whole UaC server on one machine, for the demo, the tests and the benchmarks.

Nothing here serves production: there, PostgreSQL, Redis and the processes have supervisors of
their own.
"""
