"""The warden: the root process that alone holds the Docker socket and namespace privileges. `protocol` and
`client` are what others import; `server` is the process."""
