package workspace

import (
	"os"
	"strings"
	"testing"

	"github.com/penstock-run/penstock/sandbox/mounttest"
)

// Where files are on another device than their directories, changes are collected all the
// same.
func TestCollectOnAnOverlay(t *testing.T) {
	repo := newRepo(t)
	w := prepare(t, openIn(t, mounttest.Overlay(t), Limits{}), "job.1", repo)
	sh(t, w.Dir(), "echo more >> README; mkdir new; echo new > new/file")
	c, err := w.Collect(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	patch, err := os.ReadFile(c.Patch)
	if err != nil || c.Files != 2 || !strings.Contains(string(patch), "+more") || strings.Contains(string(patch), "deleted file") {
		t.Errorf("collected %+v: %s, %v", c, patch, err)
	}
}
