"""What the policies in force say: from their objects to typed values, with what is wrong with each."""
