"""The one way to make graphs: calls checked, completed and typed."""
