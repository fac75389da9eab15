"""Policy: what a sandbox may do, as pure values. The only place where a verdict is made; nothing here does I/O
except `loading.read_policy`, which reads the one file it is given."""
