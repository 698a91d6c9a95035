"""One script a paper; one CSV file a table or figure goes to benchmarks/results/papers."""
