package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// contenders are all queues, each with the versions of what it is made of.
func contenders() []contender {
	return []contender{
		{"Penstock", versions("NATS", "github.com/nats-io/nats-server/v2"), startPenstock},
		{"what Penstock sends, alone", versions("NATS", "github.com/nats-io/nats-server/v2"), startAlone},
		{"asynq, as it comes", versions("asynq", "github.com/hibiken/asynq") + ", " + redisVersion(), startAsynq(0)},
		{"asynq, looking every 20 ms", versions("asynq", "github.com/hibiken/asynq") + ", " + redisVersion(), startAsynq(20 * time.Millisecond)},
		{"River", versions("River", "github.com/riverqueue/river") + ", " + postgresVersion(), startRiver},
		{"River, many at once, fetching every 1 ms", versions("River", "github.com/riverqueue/river") + ", " + postgresVersion(), startTunedRiver},
	}
}

// versions says which version of a module this program was built with.
func versions(name, module string) string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return name
	}
	i := slices.IndexFunc(info.Deps, func(m *debug.Module) bool { return m.Path == module })
	if i < 0 {
		return name
	}
	return name + " " + info.Deps[i].Version
}

func redisVersion() string {
	for field := range strings.FieldsSeq(firstLine("redis-server", "--version")) {
		if v, ok := strings.CutPrefix(field, "v="); ok {
			return "Redis " + v
		}
	}
	return "Redis"
}

// postgresBin is where the newest PostgreSQL of the system has its programs.
func postgresBin() string {
	found, _ := filepath.Glob("/usr/lib/postgresql/*/bin") // a constant pattern
	if len(found) == 0 {
		return ""
	}
	return found[len(found)-1]
}

func postgresVersion() string {
	words := strings.Fields(firstLine(filepath.Join(postgresBin(), "postgres"), "--version"))
	if len(words) < 3 {
		return "PostgreSQL"
	}
	return "PostgreSQL " + words[2]
}

// A process is a server that was started for one round.
type process struct {
	cmd   *exec.Cmd
	input io.Closer
}

func (p *process) end() {
	if p.input != nil {
		_ = p.input.Close() // the server's signal to end
	} else {
		_ = p.cmd.Process.Signal(syscall.SIGTERM)
	}
	kill := time.AfterFunc(10*time.Second, func() { _ = p.cmd.Process.Kill() })
	defer kill.Stop()
	_ = p.cmd.Wait() // how it ends does not matter any more
}

// startRedis syncs its log after every write, before it answers.
func startRedis(ctx context.Context, dir string) (*process, string, error) {
	if _, err := exec.LookPath("redis-server"); err != nil {
		return nil, "", fmt.Errorf("redis-server %w", errMissing)
	}
	socket := filepath.Join(dir, "redis.sock")
	p := &process{cmd: exec.Command("redis-server", "--port", "0", "--unixsocket", socket, "--dir", dir,
		"--appendonly", "yes", "--appendfsync", "always", "--save", "", "--daemonize", "no")}
	return p, socket, p.listens(ctx, socket)
}

// startPostgres runs as the user postgres where this program is root's, since
// it refuses to be root.
func startPostgres(ctx context.Context, dir string) (*process, string, error) {
	bin := postgresBin()
	if bin == "" {
		return nil, "", fmt.Errorf("PostgreSQL %w", errMissing)
	}
	var as *syscall.SysProcAttr
	if os.Geteuid() == 0 {
		u, err := user.Lookup("postgres")
		if err != nil {
			return nil, "", fmt.Errorf("the user postgres %w: %w", errMissing, err)
		}
		uid, _ := strconv.Atoi(u.Uid) // numbers on every system that has PostgreSQL
		gid, _ := strconv.Atoi(u.Gid)
		as = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}}
		if err := os.Chown(dir, uid, gid); err != nil {
			return nil, "", err
		}
	}
	data := filepath.Join(dir, "data")
	initdb := exec.CommandContext(ctx, filepath.Join(bin, "initdb"), "-D", data, "-A", "trust", "-U", "bench", "-E", "UTF8", "--locale=C")
	initdb.SysProcAttr, initdb.Dir = as, dir
	if out, err := initdb.CombinedOutput(); err != nil {
		return nil, "", fmt.Errorf("initdb: %w: %s", err, out)
	}
	p := &process{cmd: exec.Command(filepath.Join(bin, "postgres"), "-D", data, "-k", dir,
		"-c", "listen_addresses=", "-c", "fsync=on", "-c", "synchronous_commit=on", "-c", "max_connections=100")}
	p.cmd.SysProcAttr, p.cmd.Dir = as, dir
	return p, dir, p.listens(ctx, filepath.Join(dir, ".s.PGSQL.5432"))
}

// listens starts the server and waits for its socket.
func (p *process) listens(ctx context.Context, socket string) error {
	if err := p.cmd.Start(); err != nil {
		return err
	}
	for began := time.Now(); time.Since(began) < time.Minute && ctx.Err() == nil; time.Sleep(20 * time.Millisecond) {
		if c, err := net.Dial("unix", socket); err == nil {
			return c.Close()
		}
	}
	p.end()
	return fmt.Errorf("%s does not listen on %s", filepath.Base(p.cmd.Path), socket)
}
