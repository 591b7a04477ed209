"""Studies: what models learn, and what it depends on."""
