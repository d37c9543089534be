package jailinit

import (
	"errors"
	"os"
	"path"
	"strconv"
	"syscall"
)

// met says that the descriptors came through a rendezvous.
var met bool

// connect finds what leads to the runner: descriptors that the mechanism has
// handed on, or else the rendezvous.
func connect() error {
	if isControl(controlFD) {
		return nil
	}
	if _, err := os.Lstat(path.Join(MeetPath, MeetSocket)); err != nil {
		return failed("descriptor "+strconv.Itoa(controlFD)+" is not the socket of a jail's runner, and the rendezvous", err)
	}
	files, err := meet()
	if err != nil {
		return failed("meet the runner", err)
	}
	if len(files) < 2 || !isControl(files[0]) {
		return errors.New("meet the runner: it handed in something else")
	}
	// They stay where they are: the numbers that are usual may belong to the
	// runtime by now.
	met, controlFD, configFD = true, files[0], files[1]
	return nil
}

// meet returns what the runner hands in: the control socket, and the configuration.
func meet() (files []int, err error) {
	fd, err := syscall.Socket(syscall.AF_UNIX, syscall.SOCK_SEQPACKET|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	defer syscall.Close(fd)
	if err := syscall.Connect(fd, &syscall.SockaddrUnix{Name: path.Join(MeetPath, MeetSocket)}); err != nil {
		return nil, err
	}
	word, oob := make([]byte, 64), make([]byte, 2048) // more than the kernel lets one message carry
	for over := false; ; {
		n, oobn, flags, _, err := syscall.Recvmsg(fd, word, oob, syscall.MSG_CMSG_CLOEXEC)
		switch {
		case err == syscall.EINTR:
			continue
		case err != nil:
			return nil, err
		case n == 0 && !over:
			// The kernel says so, once, of a socket to which a last word came and
			// which was closed between its look for the one and for the other.
			over = true
			continue
		case n == 0:
			return nil, errors.New("it is gone")
		case flags&syscall.MSG_CTRUNC != 0:
			return nil, errors.New("too few descriptors can be open here")
		}
		messages, err := syscall.ParseSocketControlMessage(oob[:oobn])
		if err != nil {
			return nil, err
		}
		for _, m := range messages {
			fds, err := syscall.ParseUnixRights(&m)
			if err != nil {
				return nil, err
			}
			files = append(files, fds...)
		}
		if string(word[:n]) == MeetDone {
			return files, nil
		}
	}
}
