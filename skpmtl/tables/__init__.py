"""What users hand in -> `TaskTable`: ids, forms, targets, units, and rows to predict."""
