package changes

import (
	"cmp"
	"fmt"
	"time"

	"github.com/penstock-run/penstock/worker/internal/disk"
)

// Limits bound what is collected from a directory; zero fields have defaults.
type Limits struct {
	Files   int   // changed files; default 50,000
	Entries int   // files and directories that are examined; default 2,000,000
	Bytes   int64 // content of all changed files; default 1 GiB
	Patch   int64 // bytes of the patch; default 128 MiB
	Depth   int   // directories above a file; default 128
	Path    int   // bytes of a path; default 2,048

	Artifacts     int   // files that Pick passes on; default 200
	ArtifactBytes int64 // their total content; default 256 MiB
}

// WithDefaults returns the limits with the defaults where they are zero.
func (l Limits) WithDefaults() Limits {
	l.Files = cmp.Or(l.Files, 50_000)
	l.Entries = cmp.Or(l.Entries, 2_000_000)
	l.Bytes = cmp.Or(l.Bytes, 1<<30)
	l.Patch = cmp.Or(l.Patch, 128<<20)
	l.Depth = cmp.Or(l.Depth, 128)
	l.Path = cmp.Or(l.Path, 2048)
	l.Artifacts = cmp.Or(l.Artifacts, 200)
	l.ArtifactBytes = cmp.Or(l.ArtifactBytes, 256<<20)
	return l
}

// A LimitError says that a directory exceeds its [Limits].
type LimitError struct {
	What  string // "files", "bytes", "patch bytes", "depth", "path length", "entries"
	Limit int64
	Path  string // the path that exceeded it, if there is one

	// Where the whole directory lies on this host, and its size there, once the
	// workspace has determined that.
	Dir   string    `json:",omitempty"`
	Bytes int64     `json:",omitempty"`
	Since time.Time `json:",omitzero"`
	Until time.Time `json:",omitzero"` // or until its space is needed
}

func (e *LimitError) Error() string {
	text := fmt.Sprintf("the result is over the limit of %d %s", e.Limit, e.What)
	if e.Path != "" {
		text += " at " + disk.Printable(e.Path)
	}
	text += "; let the agent remove or ignore what is not part of its work"
	if e.Dir != "" {
		text += fmt.Sprintf("; what could be is stored, and the whole, %d MiB, is in %s until %s", e.Bytes>>20, e.Dir, e.Until.Format(time.DateOnly))
	}
	return text
}
