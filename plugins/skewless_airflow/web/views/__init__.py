"""The contents of the pages, as small frozen values made from the documents of a run."""
