"""Reading words, numbers, dates and times in texts of any language; imports no Django."""
