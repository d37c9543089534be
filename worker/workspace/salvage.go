package workspace

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/penstock-run/penstock/jobs"
)

// A record is what the next process must know of a workspace to collect it.
// It lies beside the workspace, where no agent can write.
type record struct {
	Isolation jobs.Isolation `json:"isolation"`
	Dir       string         `json:"dir"`
	Base      string         `json:"base,omitempty"` // directory of the base
	Commit    string         `json:"commit,omitempty"`
	Note      string         `json:"note,omitempty"`
	Tree      string         `json:"tree,omitempty"`
	Index     string         `json:"index,omitempty"`
	Written   time.Time      `json:"written,omitzero"`
}

const recordFile = "record.json"

// keep writes the record. It is the last step of Prepare: a workspace without
// one was never given to an agent, and there is nothing in it to lose.
func (w *Workspace) keep() error {
	r := record{
		Isolation: w.isolation, Dir: w.dir, Commit: w.commit, Note: w.note,
		Tree: w.before.tree, Index: w.before.index, Written: w.before.written,
	}
	if w.base != nil {
		r.Base = w.base.dir
	}
	data, err := json.Marshal(r)
	if err != nil {
		return err
	}
	if err := os.WriteFile(w.path("record.new"), data, 0o600); err != nil {
		return err
	}
	return os.Rename(w.path("record.new"), w.path(recordFile))
}

func readRecord(home string) (record, error) {
	var r record
	data, err := os.ReadFile(filepath.Join(home, recordFile))
	if err == nil {
		err = json.Unmarshal(data, &r)
	}
	return r, err
}

// salvage gives a workspace whose owner is gone to Config.Salvage. An error
// keeps the workspace where it is.
func (s *Spaces) salvage(ctx context.Context, id string, l *lock) (err error) {
	if s.cfg.Salvage == nil {
		return nil
	}
	r, err := readRecord(s.jobDir(id))
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("salvage %s: %w", id, err)
	}
	w := &Workspace{
		spaces: s, id: id, home: s.jobDir(id), dir: r.Dir, lock: l, isolation: r.Isolation, commit: r.Commit, note: r.Note,
		before: state{tree: r.Tree, index: r.Index, written: r.Written},
	}
	if r.Base != "" {
		held, err := waitLock(ctx, r.Base+".lock", syscall.LOCK_SH)
		if err != nil {
			return fmt.Errorf("salvage %s: %w", id, err)
		}
		w.base = &base{dir: r.Base, lock: held}
		defer func() { err = errors.Join(err, held.release()) }()
	}
	if err := s.cfg.Salvage(ctx, w); err != nil {
		return fmt.Errorf("salvage %s: %w", id, err)
	}
	return nil
}

// needed lists the bases that workspaces were made from, be their owners
// alive or not: without its base a workspace cannot be collected.
func (s *Spaces) needed() (map[string]bool, error) {
	ids, err := readNames(filepath.Join(s.cfg.Dir, "jobs"))
	found := map[string]bool{}
	for _, id := range ids {
		r, unreadable := readRecord(s.jobDir(id))
		if unreadable == nil && r.Base != "" {
			found[r.Base] = true
		}
	}
	return found, err
}
