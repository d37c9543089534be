package layout

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/nats-io/nats.go"
	"golang.org/x/sync/errgroup"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/internal/wire"
)

// A Group is the servers of a cluster that keep one stream.
type Group struct {
	Stream string `json:"stream"`
	// Leader is the server that everything is written through; empty while
	// there is none, and on a server that is in no cluster.
	Leader  string   `json:"leader"`
	Wanted  int      `json:"wanted"`  // how many there should be
	Current []string `json:"current"` // those that have all of it, with the leader
	Behind  []string `json:"behind"`  // those that do not yet, or are away
	// Silent: no server answers for the stream now.
	Silent bool `json:"silent,omitempty"`
}

// whole reports whether as many servers as are wanted have all of the stream.
func (g Group) whole() bool {
	alone := g.Leader == "" && g.Wanted <= 1
	return !g.Silent && len(g.Behind) == 0 && (alone || len(g.Current) >= g.Wanted)
}

// Groups returns the groups of all streams of the installation.
func Groups(ctx context.Context, nc *nats.Conn, cfg Config) ([]Group, error) {
	conn, err := wire.New(nc, jobs.RoleOperator)
	if err != nil {
		return nil, err
	}
	all, err := assets(ctx, conn, cfg)
	if err != nil {
		return nil, err
	}
	all = slices.DeleteFunc(all, func(a wire.Asset) bool { return a.Consumer != nil })
	groups := make([]Group, len(all))
	g, ctx := errgroup.WithContext(ctx)
	for i, a := range all {
		g.Go(func() error {
			// At once: those that have no leader answer nothing for a while.
			peers, err := conn.Assets().Peers(ctx, a.Stream.Name)
			groups[i] = Group{a.Stream.Name, peers.Leader, a.Stream.Replicas, peers.Current, peers.Behind, err != nil}
			if errors.Is(err, wire.ErrNoLeader) {
				return nil
			}
			return err
		})
	}
	return groups, g.Wait()
}

// lookEvery is how often Await looks again.
const lookEvery = time.Second

// Await waits until every stream is kept by as many servers as it should be,
// which takes as long as they need to copy it. It tells about those that are
// not, each time that their number changes.
func Await(ctx context.Context, nc *nats.Conn, cfg Config, tell func(waits []Group)) error {
	for last := -1; ; {
		groups, err := Groups(ctx, nc, cfg)
		if err != nil {
			return err
		}
		waits := slices.DeleteFunc(groups, Group.whole)
		if len(waits) == 0 {
			return nil
		}
		if len(waits) != last {
			last = len(waits)
			tell(waits)
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(lookEvery):
		}
	}
}
