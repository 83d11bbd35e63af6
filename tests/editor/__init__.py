"""What an editor shows to authors of rules, by the server of YAML that editors have."""
