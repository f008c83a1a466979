"""The documentation: its Markdown files, and the pages that are generated from declarations."""
