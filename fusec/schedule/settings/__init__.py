"""Schedules set by users or by measurements, and the settings that are allowed."""
