package jailinit

import (
	"syscall"
)

// execute becomes the agent. It looks for the program as a shell would, in
// the PATH of the agent's own environment.
func execute(c Config) error {
	err := error(syscall.ENOENT)
	for _, p := range candidates(c.Args[0], c.Env) {
		e := syscall.Exec(p, c.Args, c.Env)
		// A directory without permission does not end the search, but is the
		// better explanation if nothing else is found.
		if e != syscall.ENOENT && e != syscall.ENOTDIR {
			err = e
		}
		if e != syscall.ENOENT && e != syscall.ENOTDIR && e != syscall.EACCES {
			break
		}
	}
	return &stepError{"execute", c.Args[0], err}
}

func candidates(name string, env []string) []string {
	if contains(name, "/") {
		return []string{name}
	}
	search := "/usr/local/bin:/usr/bin:/bin"
	for _, kv := range env {
		if v, ok := cutPrefix(kv, "PATH="); ok {
			search = v
		}
	}
	var paths []string
	for _, dir := range split(search, ":") {
		if hasPrefix(dir, "/") { // an empty or relative one would mean the workspace
			paths = append(paths, dir+"/"+name)
		}
	}
	return paths
}
