"""The report of a run as data, its JSON form and schema, and the reader of that."""
