"""Code that runs in the type checker's container: mypy, behind one request."""
