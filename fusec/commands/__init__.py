"""The bodies of the commands, one file each; `fusec.cli` only parses arguments."""
