package workspace

import (
	"encoding/json"
	"os"
	"path/filepath"
	"time"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/worker/worktree"
)

// A record is what the next process needs to collect a workspace. It lies beside the
// workspace, where no agent can write.
type record struct {
	Isolation jobs.Isolation     `json:"isolation"`
	Dir       string             `json:"dir"`
	Base      string             `json:"base,omitempty"` // directory of the base
	Commit    string             `json:"commit,omitempty"`
	Note      string             `json:"note,omitempty"`
	Tree      string             `json:"tree,omitempty"`
	Index     string             `json:"index,omitempty"`
	Written   time.Time          `json:"written,omitzero"`
	Over      bool               `json:"overlay,omitempty"`
	Layer     string             `json:"layer,omitempty"` // directory of setup's layer
	Linked    *worktree.Worktree `json:"linked,omitempty"`
}

const recordFile = "record.json"

// writeRecord writes the record. It is the last step of Prepare: a workspace without
// one was never given to an agent, and there is nothing in it to lose.
func (s *site) writeRecord(strategy Strategy) error {
	r := record{
		Isolation: s.isolation, Dir: s.dir, Commit: s.commit, Note: s.note, Linked: s.worktree,
		Tree: s.before.Tree, Index: s.before.Index, Written: s.before.Written, Over: strategy == Overlay,
	}
	if s.base != nil {
		r.Base = s.base.Dir
	}
	if s.layer != nil {
		r.Layer = s.layer.Dir
	}
	data, err := json.Marshal(r)
	if err != nil {
		return err
	}
	if err := os.WriteFile(s.path("record.new"), data, 0o600); err != nil {
		return err
	}
	return os.Rename(s.path("record.new"), s.path(recordFile))
}

func readRecord(home string) (record, error) {
	var r record
	data, err := os.ReadFile(filepath.Join(home, recordFile))
	if err == nil {
		err = json.Unmarshal(data, &r)
	}
	return r, err
}

// files are those of the recorded workspace.
func (r record) files(at *site, hooked *hooked) files {
	switch {
	case hooked != nil:
		return &hookFiles{at, hooked}
	case r.Isolation == jobs.IsolationNone && r.Dir == at.path("workspace"):
		return &scratchFiles{own{at}}
	case r.Isolation == jobs.IsolationNone:
		return &inPlaceFiles{own{at}}
	case r.Linked != nil:
		return filesOf(Linked, at)
	case r.Over:
		return filesOf(Overlay, at)
	}
	return filesOf(Clone, at)
}
