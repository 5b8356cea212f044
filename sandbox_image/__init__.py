"""Code that runs inside a sandbox: the runner, and the `uac` library that user code imports."""
