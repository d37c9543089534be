package gitmonitor

import (
	"os"
	"strings"
	"testing"
)

// What is mounted in a workspace changes without the layers.
func TestAMountInTheWorkspaceIsRefused(t *testing.T) {
	if mounts, err := os.ReadFile("/proc/self/mountinfo"); err != nil || !strings.Contains(string(mounts), " /dev/") {
		t.Skip("nothing is mounted in /dev here")
	}
	t.Chdir("/dev")
	if err := (places{workspace: "/dev"}).check(); err == nil || !strings.Contains(err.Error(), "mounted") {
		t.Errorf("got %v", err)
	}
}
