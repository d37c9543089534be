package bwrap_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/penstock-run/penstock/sandbox"
	"github.com/penstock-run/penstock/sandbox/bwrap"
	"github.com/penstock-run/penstock/sandbox/mechanism"
	"github.com/penstock-run/penstock/sandbox/sandboxtest"
)

// A covering backend hides a directory behind a device, which cannot be.
type covering struct{ *bwrap.Backend }

func (b covering) Command(spec sandbox.Spec) (*sandbox.Command, error) {
	c, err := b.Backend.Command(spec)
	if err == nil {
		contained := c.Jail.(mechanism.Contained)
		contained.Cover.Hidden = append(contained.Cover.Hidden, "/usr")
		c.Jail = contained
	}
	return c, err
}

// Where something cannot be hidden the agent is not executed, and the error says
// what it was.
func TestNoAgentWithoutItsCover(t *testing.T) {
	b := covering{&bwrap.Backend{}}
	sandboxtest.Require(t, b.Backend)
	if c, err := b.Backend.Command(sandbox.Spec{Args: []string{"true"}}); err != nil || c.Jail.(mechanism.Contained).Cover.Empty() {
		t.Skipf("this user covers nothing from outside, err %v", err)
	}
	ws := t.TempDir()
	_, err := sandbox.Start(context.Background(), b, sandbox.Spec{Args: []string{"touch", "/workspace/ran"}, Workspace: ws}, sandbox.Streams{})
	if e, ok := errors.AsType[*sandbox.StartError](err); !ok || e.Step != "set up" || !strings.Contains(err.Error(), "cover /usr: ") {
		t.Errorf("got %v", err)
	}
	if _, err := os.Lstat(filepath.Join(ws, "ran")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the agent ran, err %v", err)
	}
}
