"""Input of users -> `TaskTable`: ids, forms, targets, units, and rows to predict."""
