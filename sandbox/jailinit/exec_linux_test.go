package jailinit

import (
	"strings"
	"testing"
)

func TestProgramsAreFoundInThePathOfTheAgent(t *testing.T) {
	got := strings.Join(candidates("x", []string{"PATH=/a:relative::/b", "HOME=/"}), " ")
	if got != "/a/x /b/x" {
		t.Errorf("got %s: only absolute directories may be searched", got)
	}
	if got := candidates("./x", nil); len(got) != 1 || got[0] != "./x" {
		t.Errorf("got %v", got)
	}
}
