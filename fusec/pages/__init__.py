"""The documentation: its Markdown files, pages generated from declarations, the JSON Schema."""
