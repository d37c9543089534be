// Package measure starts programs, reads what they and their directories take, judges whether
// that grows, and draws it.
//
//	Start ─▶ Process ─▶ Resident, Processor, Descriptors ─▶ series ─▶ Growth, Plot
package measure

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os/exec"
	"syscall"
	"time"

	"github.com/penstock-run/penstock/jobs/freeport"
)

// A Process is a program that goes on beside what measures it.
type Process struct {
	Admin string // its address of metrics
	cmd   *exec.Cmd
	ended chan struct{}
}

// Start starts a program in a group of its own, with the flag --admin and an address on loopback,
// and waits for up to a minute until it is ready, which /readyz there says. It returns the process
// also with an error, if there is one to end.
func Start(ctx context.Context, cmd *exec.Cmd) (*Process, error) {
	admin, err := freeport.Address()
	if err != nil {
		return nil, err
	}
	cmd.Args = append(cmd.Args, "--admin", admin)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	started := &Process{admin, cmd, make(chan struct{})}
	go func() {
		defer close(started.ended)
		_ = cmd.Wait() // it is ended by signals
	}()
	for range 600 {
		select {
		case <-started.ended:
			return nil, fmt.Errorf("penstock %v ended at once", cmd.Args[1:])
		case <-ctx.Done():
			return started, context.Cause(ctx)
		case <-time.After(100 * time.Millisecond):
		}
		if _, err := Get(ctx, "http://"+admin+"/readyz"); err == nil {
			return started, nil
		}
	}
	return started, fmt.Errorf("penstock %v is not ready after a minute", cmd.Args[1:])
}

// PID is the number of the process.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Signal sends a signal to the process, which may have ended.
func (p *Process) Signal(s syscall.Signal) { _ = p.cmd.Process.Signal(s) }

// End sends a signal and waits until the process has ended; after limit it kills it and returns
// an error. A nil process has ended.
func (p *Process) End(s syscall.Signal, limit time.Duration) error {
	if p == nil {
		return nil
	}
	p.Signal(s)
	select {
	case <-p.ended:
		return nil
	case <-time.After(limit):
		p.Signal(syscall.SIGKILL)
		<-p.ended
		return fmt.Errorf("penstock %s had not ended %v after a signal", p.cmd.Args[1], limit)
	}
}

// Get returns what an address answers with status 200, within ten seconds.
func Get(ctx context.Context, url string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return "", err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = errors.New(resp.Status)
	}
	return string(text), err
}
