package backends

var names = []string{"bwrap", "systemd", "oci", "none"}
