package natsd_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/penstock-run/penstock/dispatcher/natsd"
	"github.com/penstock-run/penstock/jobs/jobstest"
	"github.com/penstock-run/penstock/jobs/layout"
	"github.com/penstock-run/penstock/jobs/queue"
)

const external = `listen: "127.0.0.1:-1"
jetstream { store_dir: %q, sync_interval: always }
accounts { PENSTOCK { jetstream: enabled, users: [ { user: penstock, password: chosen } ] } }
`

// A pool that has outgrown the broker inside goes on under a server of its own,
// and back.
func TestAServerTakesADirectoryOver(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := open(t, natsd.Config{StoreDir: dir, Owner: "serve"})
	nc, err := s.Connect()
	if err != nil {
		t.Fatal(err)
	}
	job := jobstest.Submit(t, jobstest.Queue(t, nc, queue.Config{}), jobstest.Job())
	jobstest.Log(t, nc)
	jobstest.Store(t, nc)
	jobstest.Tokens(t, nc)
	jobstest.Audit(t, nc)
	jobstest.Webhooks(t, nc)
	nc.Close()
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}

	file := filepath.Join(t.TempDir(), "nats.conf")
	if err := os.WriteFile(file, fmt.Appendf(nil, external, dir), 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	url, ended := make(chan string, 1), make(chan error, 1)
	go func() {
		ended <- natsd.RunFile(ctx, file, slog.New(slog.DiscardHandler), func(address string) { url <- address })
	}()
	select {
	case address := <-url:
		underAServer(t, address, dir, job.ID)
	case err := <-ended:
		t.Fatal(err)
	case <-time.After(jobstest.Patience):
		t.Fatal("it does not start")
	}
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}

	s = open(t, natsd.Config{StoreDir: dir, Owner: "serve"})
	defer s.Close()
	back, err := s.Connect()
	if err != nil {
		t.Fatal(err)
	}
	defer back.Close()
	rec, err := jobstest.Queue(t, back, queue.Config{}).Get(jobstest.Context(t), job.ID)
	if err != nil || rec.Attempt != 1 {
		t.Errorf("the job, taken back: %+v, %v", rec, err)
	}
}

func underAServer(t *testing.T, address, dir, job string) {
	nc := jobstest.Connect(t, strings.Replace(address, "nats://", "nats://penstock:chosen@", 1))
	defer nc.Close()
	if differ, err := layout.Diff(jobstest.Context(t), nc, layout.Config{}); err != nil || len(differ) > 0 {
		t.Errorf("it differs: %+v, %v", differ, err)
	}
	if c := jobstest.Claim(t, jobstest.Queue(t, nc, queue.Config{}), "w"); c.Record().ID != job {
		t.Errorf("claimed %s, want %s", c.Record().ID, job)
	}
	_, err := natsd.Open(natsd.Config{StoreDir: dir, Owner: "serve"})
	if used, ok := errors.AsType[*natsd.InUseError](err); !ok || used.Owner != "nats server" {
		t.Errorf("a broker inside beside it: %v, want the directory in use", err)
	}
}
