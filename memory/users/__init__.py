"""Users as a whole: creating, changing and erasing them, and what becomes of their entries."""
