package main

import (
	"archive/zip"
	"bytes"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/penstock-run/penstock/cmd/internal/cli"
	"github.com/penstock-run/penstock/cmd/internal/console"
	"github.com/penstock-run/penstock/cmd/internal/pool"
	"github.com/penstock-run/penstock/jobs/backup"
)

// A store that a release with another version wrote, and a backup of it, are refused by
// every command, with a text that says which release to use. Neither is changed.
func TestAStoreOfAnotherRelease(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	serve, args := f.serve("--slots", "1")
	id := f.submit("echo done >new.txt")
	f.run("wait", "--timeout", patience(60), id)
	serve.end()
	f.storeVersion("2")
	const text = "the pool's store is of version 2, and this release of penstock reads version 1 only: use the release that wrote it, or a newer one"
	refused := func(args ...string) {
		t.Helper()
		if out, code, told := f.try(args...); code != cli.ExitUsage || !strings.Contains(told, text) {
			t.Errorf("penstock %v: exit code %d, %s%s", args, code, out, told)
		}
	}
	file := filepath.Join(t.TempDir(), "pool.backup")
	refused(args...)
	refused("job", "get", id)
	refused("run", "--repo", f.repo, "--", "true")
	refused("nats", "diff")
	refused("nats", "apply", "--downgrade")
	refused("backup", file)
	if _, err := os.Stat(file); !os.IsNotExist(err) {
		t.Errorf("a refused backup left a file: %v", err)
	}

	f.storeVersion("1")
	f.run("backup", file)
	f.aged(file, "2")
	refused("restore", file, "--dry-run")
	refused("restore", file, "--replace")
	f.aged(file, "") // of a release that wrote none
	f.run("restore", file, "--replace")
	f.start("serving", args...).end()
	if got := f.storeVersion("1"); got != "1" {
		t.Errorf("a pool without a version has %q after it was served", got)
	}
	f.kept(map[string]string{id: "+done"})
}

// storeVersion writes the version of the data directory's store, whose pool is not
// running, and returns the one before.
func (f *fixture) storeVersion(version string) (before string) {
	f.Helper()
	a := &app{out: console.New(io.Discard, os.Getenv), err: console.New(io.Discard, os.Getenv), cfg: cli.Defaults()}
	a.cfg.Data = f.data
	p, err := pool.OpenDirectory(a.shell(), pool.StoreDir(a.shell()), "test")
	f.must(err)
	defer func() { f.must(p.Close()) }()
	var info struct {
		Config map[string]any `json:"config"`
	}
	f.must(json.Unmarshal(request(f, p.Conn, "INFO", nil), &info))
	metadata, _ := info.Config["metadata"].(map[string]any)
	before, _ = metadata["penstock-store"].(string)
	metadata["penstock-store"] = version
	body, err := json.Marshal(info.Config)
	f.must(err)
	request(f, p.Conn, "UPDATE", body)
	return before
}

func request(f *fixture, nc *nats.Conn, verb string, body []byte) []byte {
	f.Helper()
	reply, err := nc.Request("$JS.API.STREAM."+verb+".KV_ps_jobs", body, 10*time.Second)
	f.must(err)
	var refused struct {
		Error any `json:"error"`
	}
	f.must(json.Unmarshal(reply.Data, &refused))
	if refused.Error != nil {
		f.Fatalf("%s: %v", verb, refused.Error)
	}
	return reply.Data
}

// aged rewrites a backup so that its store has another version; none where it is empty.
func (f *fixture) aged(file, version string) {
	f.Helper()
	old, err := zip.OpenReader(file)
	f.must(err)
	defer old.Close()
	var b bytes.Buffer
	w := zip.NewWriter(&b)
	for _, entry := range old.File {
		from, err := entry.Open()
		f.must(err)
		content, err := io.ReadAll(from)
		f.must(err)
		if entry.Name == "manifest.json" {
			content = f.otherStore(content, version)
		}
		to, err := w.Create(entry.Name)
		f.must(err)
		_, err = to.Write(content)
		f.must(err)
	}
	f.must(w.Close())
	f.must(os.WriteFile(file, b.Bytes(), 0o600))
}

// otherStore is a backup's manifest with another version of the store.
func (f *fixture) otherStore(manifest []byte, version string) []byte {
	f.Helper()
	var m backup.Manifest
	f.must(json.Unmarshal(manifest, &m))
	for i, s := range m.Streams {
		if s.Name != "KV_ps_jobs" {
			continue
		}
		var cfg map[string]any
		d := json.NewDecoder(bytes.NewReader(s.Config))
		d.UseNumber()
		f.must(d.Decode(&cfg))
		metadata, _ := cfg["metadata"].(map[string]any)
		if metadata["penstock-store"] == nil {
			f.Fatalf("the backup says no version: %v", metadata)
		}
		delete(metadata, "penstock-store")
		if version != "" {
			metadata["penstock-store"] = version
		}
		var err error
		m.Streams[i].Config, err = json.Marshal(cfg)
		f.must(err)
	}
	text, err := json.Marshal(m)
	f.must(err)
	return text
}
