"""Whether the entries that a change cites support the values in it; imports no Django."""
