"""How fast the admission server answers, beside a Go server that only says yes. Run by `make bench`."""
