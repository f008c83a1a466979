"""From a fusion that is divided over ranks and streams to the fusion that one rank runs."""
