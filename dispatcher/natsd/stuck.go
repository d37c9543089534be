package natsd

import (
	"context"
	"fmt"
	"time"

	"github.com/nats-io/nats-server/v2/server"
)

// stuckAfter is how long a server may take for what takes it milliseconds.
const stuckAfter = time.Minute

// A StuckError says that a server waits for itself. A purge by subject that meets the
// end of the disk waits for a lock that it holds, and everything else that asks for the
// stream waits behind it (nats-server 2.15.2 and 2.15.3: filestore.go, PurgeEx calls
// flushPendingMsgs, which calls fileStore.rebuildState). It cannot be stopped
// either, so only the end of the process gives the directory free.
type StuckError struct {
	Doing string
	For   time.Duration
}

func (e *StuckError) Error() string {
	return fmt.Sprintf("the server in this process is stuck: it does not %s, for %s; everything acknowledged is on the disk, and another process can serve it", e.Doing, e.For)
}

// within does something with a server that may never come to an end.
func within(doing string, do func()) error {
	done := make(chan struct{})
	go func() {
		defer close(done)
		do()
	}()
	late := time.NewTimer(stuckAfter)
	defer late.Stop()
	select {
	case <-done:
		return nil
	case <-late.C:
		return &StuckError{doing, stuckAfter}
	}
}

// stuck says so to whoever can end the process.
func (s *Server) stuck(err error) {
	s.cfg.Logger.Error("the process has to end", "err", err)
	if s.cfg.Stuck != nil {
		s.cfg.Stuck(err)
	}
}

// awaitStuck looks at a server, until ctx ends or it is stuck.
func awaitStuck(ctx context.Context, srv *server.Server) error {
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
			if err := within("look at its streams", func() { srv.Healthz(nil) }); err != nil {
				return err
			}
		}
	}
}
