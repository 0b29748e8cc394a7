"""Records of attempts at cells, and the tables merged from them."""
