"""Parts of the input whose states are kept: found and pinned by ``prepare``, made one by the merge."""
