"""Check the types in users' projects, in containers with their own image."""
