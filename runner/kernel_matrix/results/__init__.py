"""Records: what each attempt at each cell left behind, and the tables merged from them."""
