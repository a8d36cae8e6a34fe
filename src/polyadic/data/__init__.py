"""Tables: columns, distinct rows, local features, and what is remembered of them."""
