"""An entire UaC server on one machine, for the demo, the tests and the benchmarks.

None of this is for production, where PostgreSQL, Redis and the processes have their own
supervisors.
"""
