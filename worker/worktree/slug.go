package worktree

import (
	"fmt"
	"regexp"
	"strings"
	"sync"

	"github.com/penstock-run/penstock/worker/internal/disk"
	"github.com/penstock-run/penstock/worker/internal/git"
)

var (
	slugSegment = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[a-zA-Z0-9._-]+$`) })
	// Names that Windows gives to devices, with any ending.
	deviceName = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`(?i)^(con|prn|aux|nul|com[0-9]|lpt[0-9])(\.|$)`) })
	notSlug    = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`[^a-z0-9]+`) })
)

const maxSlug = 64

// checkSlug accepts a name that is harmless as a path, as part of a branch's
// name, and as an argument, on every system.
func checkSlug(slug string) error {
	refuse := func(why string) error { return fmt.Errorf("name %s %s", disk.Printable(disk.Shorten(slug)), why) }
	if slug == "" || len(slug) > maxSlug {
		return refuse(fmt.Sprintf("has not 1 to %d characters", maxSlug))
	}
	for segment := range strings.SplitSeq(slug, "/") {
		switch {
		case !slugSegment().MatchString(segment):
			return refuse("has a part that is not made of a-z, A-Z, 0-9, '.', '_' and '-'")
		case strings.Trim(segment, ".") == "" || strings.Contains(segment, ".."):
			return refuse("leads elsewhere")
		case segment[0] == '-' || segment[0] == '.' || strings.HasSuffix(segment, "."):
			return refuse("has a part that begins with '-' or '.', or ends with '.'")
		case strings.HasSuffix(strings.ToLower(segment), ".lock") || git.IsGitDir(segment) || deviceName().MatchString(segment):
			return refuse("is reserved")
		}
	}
	return nil
}

// makeSlug makes a name from a title, and from an id so that it is unique.
func makeSlug(title, id string) string {
	words := strings.Trim(notSlug().ReplaceAllString(strings.ToLower(title), "-"), "-")
	words = strings.Trim(words[:min(len(words), 40)], "-")
	tail := id[max(0, len(id)-8):]
	if words == "" {
		return "job-" + tail
	}
	// A reserved word is harmless with more text after it.
	return words + "-" + tail
}

// flat is the directory's name for a slug. A slash would put one worktree inside
// another; no slug has a '+'.
func flat(slug string) string { return strings.ReplaceAll(slug, "/", "+") }
