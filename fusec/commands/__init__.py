"""The bodies of the commands, one file each, and the flags that they share; `fusec.cli` parses."""
