package wire

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/penstock-run/penstock/jobs"
)

// Installed is what an installation was made with; zero where it has not said
// so, or where there is none.
type Installed struct {
	Replicas int
	Lease    time.Duration
}

// Parse reads the configuration of the asset on which an installation says what it is. One
// whose store has another version than this release reads is a [*jobs.StoreVersionError].
func (i *Installed) Parse(config []byte) error {
	var says struct {
		Replicas int               `json:"num_replicas"`
		Metadata map[string]string `json:"metadata"`
	}
	if err := json.Unmarshal(config, &says); err != nil {
		return fmt.Errorf("configuration of an installation: %w", err)
	}
	lease, err := time.ParseDuration(says.Metadata[metaLease])
	if err != nil {
		lease = 0 // made by a release that wrote none
	}
	*i = Installed{says.Replicas, lease}
	version := cmp.Or(says.Metadata[metaStore], "1") // nothing was written before there were versions
	if found, err := strconv.Atoi(version); err != nil || found != store {
		return &jobs.StoreVersionError{Found: found, Known: store}
	}
	return nil
}

// awaitJetStream is for how long the JetStream of a server may not answer:
// the server has just been started, or it never will.
const awaitJetStream = 5 * time.Second

// Installed reads what is written on an asset of the installation. An installation whose
// store has another version is a [*jobs.StoreVersionError]. A role that may
// not ask learns nothing: it works through processes that have asked.
func (s Assets) Installed(ctx context.Context, stream string) (Installed, error) {
	if role := s.c.refused.role; !role.All() && role != jobs.RoleWorker {
		return Installed{}, nil
	}
	var info struct {
		Config json.RawMessage `json:"config"`
	}
	for began := time.Now(); ; {
		err := s.c.askOnce(ctx, Patience, &nats.Msg{Subject: s.c.API("STREAM.INFO." + stream)}, &info)
		switch {
		case NoStream(err):
			return Installed{}, nil
		case errors.Is(err, nats.ErrNoResponders) && time.Since(began) > awaitJetStream:
			return Installed{}, fmt.Errorf("%w: no server here has JetStream: %w", jobs.ErrUnavailable, err)
		case err == nil:
			var has Installed
			err := has.Parse(info.Config)
			return has, err
		case !unanswered(err):
			return Installed{}, fmt.Errorf("look for an installation: %w", err)
		}
		if err := s.c.wait(ctx, err); err != nil {
			return Installed{}, fmt.Errorf("look for an installation: %w", err)
		}
	}
}

// ErrNoLeader says that no server answers for a stream.
var ErrNoLeader = errors.New("no server answers for it")

// Peers are the servers that keep a stream. The leader is empty while there is
// none, and on a server without a cluster.
type Peers struct {
	Leader          string
	Wanted          int
	Current, Behind []string
}

// Peers asks for the servers that keep a stream. While the stream has no leader
// there is no answer: that is [ErrNoLeader].
func (s Assets) Peers(ctx context.Context, stream string) (Peers, error) {
	var info struct {
		Config struct {
			Replicas int `json:"num_replicas"`
		} `json:"config"`
		Cluster struct {
			Leader string `json:"leader"`
			// Desired is there while the number of servers changes.
			Desired  json.RawMessage `json:"desired"`
			Replicas []struct {
				Name    string `json:"name"`
				Current bool   `json:"current"`
				Offline bool   `json:"offline"`
			} `json:"replicas"`
		} `json:"cluster"`
	}
	err := s.c.askOnce(ctx, Patience, &nats.Msg{Subject: s.c.API("STREAM.INFO." + stream)}, &info)
	if err != nil && unanswered(err) && ctx.Err() == nil {
		err = ErrNoLeader
	}
	if err != nil {
		return Peers{}, fmt.Errorf("look at stream %s: %w", stream, err)
	}
	peers := Peers{Leader: info.Cluster.Leader, Wanted: info.Config.Replicas}
	if peers.Leader != "" {
		peers.Current = append(peers.Current, peers.Leader)
	}
	// While servers are added they are called current before they have the
	// messages (nats-server 2.15.2).
	changing := len(info.Cluster.Desired) > 0
	for _, r := range info.Cluster.Replicas {
		if r.Current && !r.Offline && !changing {
			peers.Current = append(peers.Current, r.Name)
		} else {
			peers.Behind = append(peers.Behind, r.Name)
		}
	}
	return peers, nil
}

// Streams returns the names of all streams.
func (s Assets) Streams(ctx context.Context) ([]string, error) {
	var all []string
	for {
		var page struct {
			Total   int      `json:"total"`
			Streams []string `json:"streams"`
		}
		if err := s.c.Ask(ctx, "STREAM.NAMES", fmt.Appendf(nil, `{"offset":%d}`, len(all)), &page); err != nil {
			return nil, fmt.Errorf("list streams: %w", err)
		}
		all = append(all, page.Streams...)
		if len(page.Streams) == 0 || len(all) >= page.Total {
			return all, nil
		}
	}
}
