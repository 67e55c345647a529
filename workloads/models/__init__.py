"""Networks, one file each: a function that returns the `OpGraph` of its inference."""
