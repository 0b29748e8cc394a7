"""Results in files of any columns, with a mapping that the user writes."""
