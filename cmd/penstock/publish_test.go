package main

import (
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"testing"
	"time"
)

// A server in a jail without a network is reached from outside, through the
// port that was asked for and no other, until the jail ends.
func TestPublish(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	if _, err := exec.LookPath("python3"); err != nil {
		skip(t, "python3", "python3 is not here: %v", err)
	}
	ws := t.TempDir()
	f.must(os.WriteFile(filepath.Join(ws, "page"), []byte("from the jail"), 0o644))
	cmd := f.command("sandbox", "run", "--publish", "0:3000", "--", "python3", "-m", "http.server", "--bind", "127.0.0.1", "3000")
	cmd.Dir = ws
	said := &syncBuffer{}
	cmd.Stdout, cmd.Stderr = said, said
	f.must(cmd.Start())
	where := regexp.MustCompile(`penstock: (127\.0\.0\.1:[0-9]+) is forwarded to port 3000`)
	f.eventually(20*time.Second, "the port is said", func() bool { return where.MatchString(said.String()) })
	address := where.FindStringSubmatch(said.String())[1]
	url := "http://" + address + "/page"
	client := &http.Client{Timeout: 5 * time.Second}
	defer client.CloseIdleConnections()
	page := ""
	f.eventually(20*time.Second, "the server answers", func() bool {
		resp, err := client.Get(url)
		if err != nil {
			return false // it does not listen yet
		}
		defer resp.Body.Close()
		b, _ := io.ReadAll(resp.Body)
		page = string(b)
		return true
	})
	if page != "from the jail" {
		t.Errorf("got %q", page)
	}
	f.must(cmd.Process.Signal(os.Interrupt))
	if _ = cmd.Wait(); cmd.ProcessState.ExitCode() != 130 {
		t.Errorf("ended with %v\n%s", cmd.ProcessState, said)
	}
	if c, err := net.Dial("tcp", address); err == nil {
		c.Close()
		t.Error("the port is open after the jail's end")
	}
	f.refused(2, []string{"--publish x", "hint: write PORT"}, "sandbox", "run", "--publish", "x", "--", "true")
}
