"""The console: its answers, its guards, its process, and the page in a real Chromium."""
