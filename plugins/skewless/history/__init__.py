"""What earlier nights of a job tell about tonight: the usual bands of its figures, and when a day is final."""
