package natsd

import "github.com/nats-io/nats-server/v2/server"

// heal replaces a server that cannot write any more. A stream that has met
// the end of the disk accepts and answers no message after that, even when
// there is room again: only a new server opens it. Everything acknowledged is on
// the disk, so the new server has it, and connected clients reconnect. On a disk
// that is still full the new server is limited to what it has, and refuses
// writes with an explanation.
func (s *Server) heal(host string) {
	srv := s.server()
	why := broken(srv)
	if why == "" {
		return
	}
	s.cfg.Logger.Error("the store was not written; the server is started anew", "why", why)
	srv.Shutdown()
	srv.WaitForShutdown()
	if err := s.start(host); err != nil {
		s.cfg.Logger.Error("the server does not start; it is tried again", "err", err) // it is broken as before
		return
	}
	s.cfg.Logger.Warn("the server runs again")
}

// broken says why a server cannot write, if so.
func broken(srv *server.Server) string {
	if !srv.JetStreamEnabled() {
		return "its store is closed"
	}
	if srv.JetStreamIsClustered() {
		return "" // another one of the cluster takes over
	}
	for _, e := range srv.Healthz(&server.HealthzOptions{Details: true}).Errors {
		// A directory without its stream is one that is being made or removed.
		if e.Type == server.HealthzErrorStream && has(srv, e.Account, e.Stream) {
			return e.Error
		}
	}
	return ""
}

// has reports whether a server has a stream.
func has(srv *server.Server, account, stream string) bool {
	const many = 1 << 20
	info, err := srv.Jsz(&server.JSzOptions{Account: account, Streams: true, Limit: many})
	if err != nil {
		return false
	}
	for _, acc := range info.AccountDetails {
		for _, str := range acc.Streams {
			if str.Name == stream {
				return true
			}
		}
	}
	return false
}
