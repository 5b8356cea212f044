"""Check the types of users' projects, in containers with an image of their own."""
