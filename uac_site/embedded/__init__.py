"""A whole UaC server on one machine, for the demo, the tests and the benchmarks.

Nothing here is for production, where PostgreSQL, Redis and the processes have supervisors of their
own.
"""
