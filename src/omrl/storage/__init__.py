"""How omrl keeps what it makes: files that are written whole, and folders that say whose they are."""
