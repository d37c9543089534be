package main

import (
	"fmt"
	"net"
	"strconv"
	"strings"

	"github.com/penstock-run/penstock/cmd/internal/cli"
)

// A published port of the host leads to one of the jail.
type published struct {
	listener net.Listener
	port     int // inside
}

// openPorts opens the ports of --publish. When one cannot be had, none is.
func (r *jailRun) openPorts() error {
	for _, text := range r.publish {
		address, port, err := publication(text)
		if err == nil {
			var l net.Listener
			if l, err = net.Listen("tcp", address); err == nil {
				r.published = append(r.published, published{l, port})
			}
		}
		if err != nil {
			r.closePorts()
			return cli.Usage("write PORT, PORT:JAILPORT or HOST:PORT:JAILPORT", "--publish %s: %w", text, err)
		}
	}
	return nil
}

func (r *jailRun) closePorts() {
	for _, p := range r.published {
		p.listener.Close()
	}
}

// sayPorts tells where the ports are: who asked for port 0 does not know.
func (r *jailRun) sayPorts() {
	for _, p := range r.published {
		r.err.Printf("penstock: %s leads to port %d of the jail\n", p.listener.Addr(), p.port)
	}
}

// publication reads [HOST:]PORT[:JAILPORT]. Without a host only programs of
// this host find the port.
func publication(text string) (address string, port int, err error) {
	host, rest := "127.0.0.1", text
	if end := strings.LastIndex(text, "]:"); strings.HasPrefix(text, "[") && end > 0 {
		host, rest = text[1:end], text[end+2:]
	} else if name, more, ok := strings.Cut(text, ":"); ok && strings.Trim(name, "0123456789") != "" {
		host, rest = name, more
	}
	outside, inside, both := strings.Cut(rest, ":")
	if !both {
		inside = outside
	}
	if _, err := strconv.ParseUint(outside, 10, 16); err != nil {
		return "", 0, fmt.Errorf("%q is not a port of the host", outside)
	}
	n, err := strconv.ParseUint(inside, 10, 16)
	if err != nil || n == 0 {
		return "", 0, fmt.Errorf("%q is not a port of the jail", inside)
	}
	return net.JoinHostPort(host, outside), int(n), nil
}
