"""The statements of transposes."""
