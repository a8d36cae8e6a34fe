"""Models of trees that other libraries have grown: read, and in one form for all of them."""
