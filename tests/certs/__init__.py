"""The certificate program."""
