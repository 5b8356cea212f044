"""What runs in the container that checks the types of a project: mypy, behind one request."""
