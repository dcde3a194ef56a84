"""What a flight recording is: changes of facts, what was decided on them, and the bytes of both. No files are touched here."""
