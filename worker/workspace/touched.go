package workspace

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/penstock-run/penstock/jobs/patchstat"
)

// maxTouched bounds the bytes that [Workspace.Touched] reads of a difference. Files beyond it are
// not known.
const maxTouched = 4 << 20

// Touched says which files differ from the base by now, and in which lines, while the agent
// has the workspace. What is written meanwhile may be in it or not, and agents' commits count
// as the files that they lead to. It may be called at the same time as the other methods, but
// for Close, and not twice at once. A workspace without a repository has no such files.
func (w *Workspace) Touched(ctx context.Context) (stat patchstat.Stat, err error) {
	if w.commit == "" || w.Strategy() == Hook || w.collection().directory().Untouched() {
		return stat, nil
	}
	if err := w.files.check(); err != nil {
		return stat, err
	}
	// A directory of its own: what was killed in it disturbs no collection.
	look := w.path("look")
	if err := errors.Join(os.RemoveAll(look), os.Mkdir(look, 0o700)); err != nil {
		return stat, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(look)) }()
	at := *w.site
	at.home = look
	if err := at.ownGit(); err != nil {
		return stat, err
	}
	c := collection{site: &at, files: w.files, inUse: true}
	d := c.directory()
	after, _, err := d.Snapshot(ctx, w.before, at.path("index.after"))
	if err != nil {
		return stat, fmt.Errorf("look at workspace %s while it is used: %w", w.id, err)
	}
	return readTouched(func(out io.Writer) error { return d.Compare(ctx, w.before, after, out) })
}

// readTouched reads a difference of which the end may be missing.
func readTouched(write func(io.Writer) error) (patchstat.Stat, error) {
	var kept head
	if err := write(&kept); err != nil {
		return patchstat.Stat{}, err
	}
	stat, err := patchstat.Read(&kept.Buffer)
	if n := len(stat.Files); kept.cut && n > 0 {
		stat.Files[n-1].Whole = true
		stat.More++
	}
	return stat, err
}

// A head keeps the first bytes that are written to it, up to maxTouched.
type head struct {
	bytes.Buffer
	cut bool // there were more
}

func (h *head) Write(p []byte) (int, error) {
	room := min(maxTouched-h.Len(), len(p))
	h.cut = h.cut || room < len(p)
	h.Buffer.Write(p[:room])
	return len(p), nil
}
