"""Schedules that users or measurements set, and what may be set."""
