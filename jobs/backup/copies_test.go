//go:build unix

package backup_test

import (
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/backup"
	"github.com/penstock-run/penstock/jobs/internal/wire"
	"github.com/penstock-run/penstock/jobs/jobstest"
)

// A cluster that loses a server right after a restore must not lose the pool:
// the restore ends when every server has all of it, and not while one of them
// cannot say so.
func TestARestoreEndsWithACopyOnEachServer(t *testing.T) {
	t.Parallel()
	p := open(t, jobstest.Start(t).Connect())
	for range 3 {
		jobstest.Submit(t, p.queue, jobstest.Job())
	}
	later, at := jobstest.Job(), time.Now().Add(time.Hour)
	later.RunAt = &at // its timer is in a work queue
	jobstest.Submit(t, p.queue, later)
	path, m := p.file()
	f, err := backup.Open(path)
	p.must(err)
	defer f.Close()
	ctx := jobstest.Context(t)
	cluster := jobstest.StartCluster(t)
	nc, err := nats.Connect(cluster.URL(), nats.MaxReconnects(-1))
	p.must(err)
	defer nc.Close()
	conn, err := wire.New(nc, jobs.RoleOperator)
	p.must(err)
	_, err = conn.Assets().Streams(ctx) // waits until the cluster has a leader
	p.must(err)

	first := nc.ConnectedServerName()
	other := cluster.Node(map[string]string{"n1": "n2", "n2": "n3", "n3": "n1"}[first])
	restored, ended := make(chan struct{}), make(chan error, 1)
	go func() {
		streams := 0
		ended <- f.Restore(ctx, nc, 3, func(backup.Stream) {
			if streams++; streams == len(m.Streams) {
				other.Pause()
				close(restored)
			}
		})
	}()
	<-restored
	select {
	case err := <-ended:
		t.Fatalf("the restore has ended with %v while a server could not say whether it has a copy", err)
	case <-time.After(2 * time.Second):
	}
	other.Continue()
	p.must(<-ended)

	cluster.Node(first).Kill()
	for _, s := range m.Streams {
		var info struct {
			State struct{ Messages uint64 }
		}
		if err := conn.Ask(ctx, "STREAM.INFO."+s.Name, nil, &info); err != nil || info.State.Messages != s.Messages {
			t.Errorf("%s has %d messages, want %d (%v)", s.Name, info.State.Messages, s.Messages, err)
		}
	}
}
