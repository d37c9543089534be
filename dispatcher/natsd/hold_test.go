package natsd_test

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/penstock-run/penstock/dispatcher/natsd"
)

// store makes a store with a message in stream S and one in stream T, and returns the
// directory of S.
func store(t *testing.T, dir string) string {
	t.Helper()
	s := open(t, natsd.Config{StoreDir: dir})
	js := stream(t, s)
	for _, name := range []string{"S", "T"} {
		if _, err := js.CreateStream(t.Context(), jetstream.StreamConfig{Name: name, Subjects: []string{strings.ToLower(name)}}); err != nil {
			t.Fatal(err)
		}
		if _, err := js.Publish(t.Context(), strings.ToLower(name), []byte("kept")); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	return filepath.Join(dir, "jetstream", "PENSTOCK", "streams", "S")
}

func stream(t *testing.T, s *natsd.Server) jetstream.JetStream {
	t.Helper()
	nc, err := s.Connect()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	return js
}

// wantBoth opens the store and looks for both messages.
func wantBoth(t *testing.T, dir string) {
	t.Helper()
	s := open(t, natsd.Config{StoreDir: dir})
	defer s.Close()
	for _, name := range []string{"S", "T"} {
		m, err := stream(t, s).Stream(t.Context(), name)
		if err != nil || m.CachedInfo().State.Msgs != 1 {
			t.Errorf("stream %s: %v", name, err)
		}
	}
	if _, err := os.Stat(filepath.Join(dir, "starting")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("what secured the start: %v", err)
	}
}

// A server that fails to open a stream removes its files. The start fails and puts them
// back; when the cause is gone, nothing is lost.
func TestAFailedStartLosesNothing(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := store(t, dir)
	// What a full disk does to the directory of the consumers, a file in its place does, too.
	consumers := filepath.Join(s, "obs")
	if err := os.RemoveAll(consumers); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(consumers, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		_, err := natsd.Open(natsd.Config{StoreDir: dir, Owner: "test"})
		left, ok := errors.AsType[*natsd.LeftOutError](err)
		if !ok || !slices.Equal(left.Streams, []string{"S"}) || !strings.Contains(left.Reason, "consumer storage directory") {
			t.Fatalf("opened with %v", err)
		}
	}
	if err := os.Remove(consumers); err != nil {
		t.Fatal(err)
	}
	wantBoth(t, dir)
}

// The next start returns what one that was killed had not returned yet.
func TestAKilledStartLosesNothing(t *testing.T) {
	t.Parallel()
	for name, kill := range map[string]func(s string) error{
		"all of a stream": os.RemoveAll,
		"its messages":    func(s string) error { return os.RemoveAll(filepath.Join(s, "msgs")) },
		"its description": func(s string) error { return os.Remove(filepath.Join(s, "meta.inf")) },
		"nothing":         func(string) error { return nil },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			s := store(t, dir)
			if err := os.CopyFS(filepath.Join(dir, "starting"), os.DirFS(filepath.Join(dir, "jetstream"))); err != nil {
				t.Fatal(err)
			}
			if err := kill(s); err != nil {
				t.Fatal(err)
			}
			wantBoth(t, dir)
		})
	}
}
