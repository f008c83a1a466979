"""Texts of fusions and their segments: those of nvFuser, JSON, DOT and Mermaid."""
