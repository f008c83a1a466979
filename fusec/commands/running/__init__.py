"""`fusec run`: on one GPU, or as several ranks."""
