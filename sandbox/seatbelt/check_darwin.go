package seatbelt

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/penstock-run/penstock/sandbox"
)

// attempts says a word for each thing that must not work. The last line tells
// that it came so far.
const attempts = `cat "$1/secret" >/dev/null 2>&1 && echo files
echo x 2>/dev/null >"$1/written" && echo files
kill -0 "$2" 2>/dev/null && echo processes
ps -p "$2" 2>/dev/null | grep -q "$2" && echo processes
nc -z 127.0.0.1 "$3" >/dev/null 2>&1 && echo network
test -u /usr/bin/top && /usr/bin/top -l 0 >/dev/null 2>&1 && echo privileges
test "$(ulimit -Hn)" = 64 || echo open-files
echo done`

// Check makes a jail and tries to break it.
func (b *Backend) Check(ctx context.Context) ([]sandbox.Feature, error) {
	dir, err := os.MkdirTemp("", "penstock-check-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	if err := os.WriteFile(filepath.Join(dir, "secret"), []byte("x"), 0o600); err != nil {
		return nil, err
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	defer l.Close()
	_, port, err := net.SplitHostPort(l.Addr().String())
	if err != nil {
		return nil, err
	}
	hoped := []sandbox.Feature{
		sandbox.FeatureFiles, sandbox.FeatureProcesses, sandbox.FeatureNetwork, sandbox.FeaturePrivileges, sandbox.FeatureOpenFiles,
	}
	spec := sandbox.Spec{
		Args:   []string{"/bin/sh", "-c", attempts, "sh", dir, strconv.Itoa(os.Getpid()), port},
		Limits: sandbox.Limits{OpenFiles: 64},
	}.Allow(sandbox.FeatureIPC, sandbox.FeatureKill, sandbox.FeatureTemporary, sandbox.FeatureSyscalls)
	var out, said bytes.Buffer
	exit, err := sandbox.Run(ctx, trial{b, hoped}, spec, sandbox.Streams{Stdout: &out, Stderr: &said})
	if err == nil && !strings.HasSuffix(out.String(), "done\n") {
		err = fmt.Errorf("%v: %s", exit, strings.TrimSpace(said.String()))
	}
	if err != nil {
		return nil, fmt.Errorf("no jail can be made here: %w", err)
	}
	var enforced []sandbox.Feature
	broken := strings.Fields(out.String())
	for _, f := range hoped {
		if !slices.Contains(broken, string(f)) {
			enforced = append(enforced, f)
		}
	}
	if len(enforced) == 0 {
		return nil, errors.New("no jail can be made here: the sandbox of this system stops nothing")
	}
	return enforced, nil
}

// A trial is a backend that believes in itself.
type trial struct {
	*Backend
	features []sandbox.Feature
}

func (t trial) Check(context.Context) ([]sandbox.Feature, error) { return t.features, nil }
