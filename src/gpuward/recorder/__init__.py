"""The flight recorder: recordings of passes in a ring of files, written beside the loop and read again."""
