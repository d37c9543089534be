package natsd

import "github.com/nats-io/nats-server/v2/server"

// heal replaces a server that cannot write any more. A stream that has met
// the end of the disk accepts and answers no message after that, even when
// there is room again: only a new server opens it. Everything acknowledged is on
// the disk, so the new server has it, and connected clients reconnect. On a disk
// that is still full the new server is limited to what it has, and refuses
// writes with an explanation. Without room even for a safe start, it stays as it is.
//
// Its error is a [StuckError].
func (s *Server) heal(host string) error {
	srv := s.server()
	why := ""
	if err := within("look at its streams", func() { why = broken(srv) }); err != nil || why == "" {
		return err
	}
	if err := holdStreams(s.cfg.StoreDir); err != nil {
		s.cfg.Logger.Error("the store was not written; the server is started anew when there is room", "why", why, "err", err)
		return nil
	}
	s.cfg.Logger.Error("the store was not written; the server is started anew", "why", why)
	if err := within("stop", func() { stop(srv) }); err != nil {
		return err
	}
	if err := s.start(host); err != nil {
		s.cfg.Logger.Error("the server does not start; it is tried again", "err", err) // it is broken as before
		return nil
	}
	s.cfg.Logger.Warn("the server runs again")
	return nil
}

// broken says why a server cannot write, if so. The health check goes through
// the directories of streams, so it also complains about a stream that is being
// made or removed at that moment: a stream counts when the server has it before
// and after a check that complains about it.
func broken(srv *server.Server) string {
	if !srv.JetStreamEnabled() {
		return "its store is closed"
	}
	if srv.JetStreamIsClustered() {
		return "" // another one of the cluster takes over
	}
	if len(unhealthy(srv)) == 0 {
		return ""
	}
	before := streams(srv)
	failed := unhealthy(srv)
	after := streams(srv)
	for stream, why := range failed {
		if before[stream] && after[stream] {
			return why
		}
	}
	return ""
}

// A streamName is the name of a stream and of the account that it is of.
type streamName struct{ account, stream string }

// unhealthy returns the streams about which the health check complains, with
// what it says.
func unhealthy(srv *server.Server) map[streamName]string {
	failed := map[streamName]string{}
	for _, e := range srv.Healthz(&server.HealthzOptions{Details: true}).Errors {
		if e.Type == server.HealthzErrorStream {
			failed[streamName{e.Account, e.Stream}] = e.Error
		}
	}
	return failed
}

// streams returns the streams that a server has.
func streams(srv *server.Server) map[streamName]bool {
	list := map[streamName]bool{}
	info, err := details(srv, server.JSzOptions{})
	if err != nil {
		return list
	}
	for _, acc := range info.AccountDetails {
		for _, str := range acc.Streams {
			list[streamName{acc.Name, str.Name}] = true
		}
	}
	return list
}

// details says what streams a server has, and what else of them the options ask for.
func details(srv *server.Server, more server.JSzOptions) (*server.JSInfo, error) {
	more.Accounts, more.Streams, more.Limit = true, true, 1<<20
	return srv.Jsz(&more)
}
