package jailinit

import "syscall"

// dial begins to connect. What connects at once is answered at once.
func (a *connector) dial(r Request) bool {
	fd, err := begin(r.Args)
	if err == syscall.EINPROGRESS {
		a.waiting = append(a.waiting, connecting{r.ID, fd})
		return true
	}
	return a.answer(r.ID, fd, err)
}

// begin returns a socket that connects, or is connected.
func begin(args []string) (int, error) {
	if len(args) != 2 {
		return -1, syscall.EINVAL
	}
	var family int
	var sa syscall.Sockaddr
	switch args[0] {
	case "tcp":
		var err error
		if family, sa, err = parseAddress(args[1]); err != nil {
			return -1, syscall.EINVAL
		}
	case "unix":
		family, sa = syscall.AF_UNIX, &syscall.SockaddrUnix{Name: args[1]}
	default:
		return -1, syscall.EAFNOSUPPORT
	}
	fd, err := syscall.Socket(family, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC|syscall.SOCK_NONBLOCK, 0)
	if err != nil {
		return -1, err
	}
	return fd, syscall.Connect(fd, sa)
}
