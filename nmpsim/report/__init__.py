"""What happened in a run, as data: the report, its JSON form and schema, and the way back."""
