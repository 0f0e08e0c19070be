"""What a page says, as small frozen values made from the documents of a run."""
