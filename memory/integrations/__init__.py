"""What other products expect: each is removable by deleting its folder and one line."""
