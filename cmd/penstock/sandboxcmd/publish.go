package sandboxcmd

import (
	"fmt"
	"net"
	"strconv"
	"strings"

	"github.com/penstock-run/penstock/cmd/internal/cli"
	"github.com/penstock-run/penstock/cmd/internal/console"
)

// A port of the host that leads to one of the jail.
type port struct {
	listener net.Listener
	inside   int
}

// Ports are those of --publish.
type ports []port

// openPorts opens the ports that the flags name. It opens all or none.
func openPorts(flags []string) (ports, error) {
	var opened ports
	for _, text := range flags {
		address, inside, err := publication(text)
		if err == nil {
			var l net.Listener
			if l, err = net.Listen("tcp", address); err == nil {
				opened = append(opened, port{l, inside})
			}
		}
		if err != nil {
			opened.close()
			return nil, cli.Usage("write PORT, PORT:JAILPORT or HOST:PORT:JAILPORT", "--publish %s: %w", text, err)
		}
	}
	return opened, nil
}

func (p ports) close() {
	for _, one := range p {
		_ = one.listener.Close() // Publish closes it, too, when the jail has ended
	}
}

// report says where the ports are, because port 0 is any free one.
func (p ports) report(w *console.Writer) {
	for _, one := range p {
		w.Printf("penstock: %s is forwarded to port %d of the jail\n", one.listener.Addr(), one.inside)
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
