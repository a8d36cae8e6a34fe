"""Tables: columns, distinct rows, local features, and the marginals that a model keeps."""
