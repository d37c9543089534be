package natsd_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/penstock-run/penstock/dispatcher/natsd"
)

// smallDisk mounts a disk of its own, which ends with the test.
func smallDisk(t *testing.T, mib int) string {
	t.Helper()
	dir := t.TempDir()
	if err := syscall.Mount("penstock-test", dir, "tmpfs", 0, fmt.Sprintf("size=%dm", mib)); err != nil {
		t.Skipf("no small disk can be mounted: %v", err)
	}
	t.Cleanup(func() {
		// A server that has just ended may still close files.
		var err error
		for began := time.Now(); time.Since(began) < 10*time.Second; time.Sleep(10 * time.Millisecond) {
			if err = syscall.Unmount(dir, 0); err != syscall.EBUSY {
				break
			}
		}
		if err != nil {
			t.Error(err)
		}
	})
	return dir
}

// fill writes until not a byte more goes in, and returns what frees it.
func fill(t *testing.T, dir string) (free func()) {
	t.Helper()
	f, err := os.Create(filepath.Join(dir, "ballast"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for _, size := range []int{1 << 20, 4 << 10, 1} {
		for err = nil; err == nil; {
			_, err = f.Write(make([]byte, size))
		}
		if !errors.Is(err, syscall.ENOSPC) {
			t.Fatal(err)
		}
	}
	return func() {
		if err := os.Remove(f.Name()); err != nil {
			t.Fatal(err)
		}
	}
}

// A server whose disk has not a byte left refuses publishes and says why. When
// there is room it accepts them again, without a restart, from clients inside and
// outside the process, and it still has all that it had acknowledged.
func TestAFullDiskHeals(t *testing.T) {
	t.Parallel()
	dir := smallDisk(t, 32)
	s := open(t, natsd.Config{StoreDir: dir, Listen: "127.0.0.1:0"})
	defer s.Close()
	inside, err := s.Connect()
	if err != nil {
		t.Fatal(err)
	}
	defer inside.Close()
	outside, err := s.Endpoint().Connect()
	if err != nil {
		t.Fatal(err)
	}
	defer outside.Close()
	at, err := jetstream.New(inside)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	if _, err := at.CreateStream(ctx, jetstream.StreamConfig{Name: "S", Subjects: []string{"s"}}); err != nil {
		t.Fatal(err)
	}
	acknowledged := uint64(0)
	publish := func(nc *nats.Conn) error {
		js, err := jetstream.New(nc)
		if err != nil {
			return err
		}
		try, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		if _, err = js.Publish(try, "s", make([]byte, 1000), jetstream.WithRetryAttempts(0)); err == nil {
			acknowledged++
		}
		return err
	}
	until := func(what string, ok func() bool) {
		t.Helper()
		for !ok() {
			if ctx.Err() != nil {
				t.Fatalf("not in time: %s", what)
			}
			time.Sleep(20 * time.Millisecond)
		}
	}
	for range 100 {
		if err := publish(inside); err != nil {
			t.Fatal(err)
		}
	}
	for round := range 2 {
		free := fill(t, dir)
		until("it refuses with words", func() bool {
			_, refused := errors.AsType[*jetstream.APIError](publish(inside))
			return refused
		})
		time.Sleep(100 * time.Millisecond)
		free()
		for name, nc := range map[string]*nats.Conn{"inside": inside, "outside": outside} {
			until(fmt.Sprintf("round %d: it takes messages from %s again", round, name), func() bool { return publish(nc) == nil })
		}
	}
	str, err := at.Stream(ctx, "S")
	if err != nil {
		t.Fatal(err)
	}
	// A message that was not answered may be there.
	if got := str.CachedInfo().State.Msgs; got < acknowledged {
		t.Errorf("%d messages are there, %d were acknowledged", got, acknowledged)
	}
}

// On a disk without room for a safe start, a server does not start, and nothing is lost.
func TestNoStartWithoutRoom(t *testing.T) {
	t.Parallel()
	dir := smallDisk(t, 32)
	store(t, dir)
	files := func(n uint64) {
		t.Helper()
		if err := syscall.Mount("penstock-test", dir, "tmpfs", syscall.MS_REMOUNT, fmt.Sprintf("size=32m,nr_inodes=%d", n)); err != nil {
			t.Fatal(err)
		}
	}
	var is syscall.Statfs_t
	if err := syscall.Statfs(dir, &is); err != nil {
		t.Fatal(err)
	}
	files(is.Files - is.Ffree + 3)
	if _, err := natsd.Open(natsd.Config{StoreDir: dir, Owner: "test"}); !errors.Is(err, syscall.ENOSPC) {
		t.Fatalf("opened with %v", err)
	}
	files(is.Files)
	wantBoth(t, dir)
}
