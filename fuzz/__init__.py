"""What could break it: generators of well-typed graphs, and what drives them."""
