"""Pictures and tables of the README and the docs; `make figures` draws them all."""
