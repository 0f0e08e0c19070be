"""The kinds of tasks: a Spark step, a decision, a publication, an approval."""
