"""The core, module by module: what laws and golden cases leave open, and the corners of what they cover."""
