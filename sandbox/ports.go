package sandbox

import "net"

// ports are what leads in and out of a jail.
type ports struct {
	listeners []net.Listener   // of the TCP addresses of Spec.Listen
	packets   []net.PacketConn // of its UDP addresses
	requests  *requester       // nil without Spec.Dial
}

func (p *ports) close() {
	for _, l := range p.listeners {
		l.Close()
	}
	for _, c := range p.packets {
		c.Close()
	}
	if p.requests != nil {
		p.requests.Close()
	}
}
