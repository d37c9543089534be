// Package series applies the patches of many jobs to a work tree of the user, one after
// the other. It stops at the first that cannot be merged, and continues later.
//
//	waiting ─▶ applying ─┬▶ applied
//	   ▲          │      └▶ conflict ─┬─ resolved by a person ─▶ applied
//	   └─ killed ─┘                   └─ Skip, files put back ─▶ skipped
//
// A file in the work tree's git directory says how far it has come. Before a patch is
// merged, that file has what git's index says of each path that the patch changes. Git
// writes the index last, so that after a kill -9 it tells whether the patch is in; where it is
// only in part, the paths are put back and the patch is merged again. A lock, which git
// inherits, keeps a second process out.
package series

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/penstock-run/penstock/cmd/internal/filelock"
	"github.com/penstock-run/penstock/worker/checkout"
)

// State is how far a patch has come.
type State string

// The states of a patch. The last four are final.
const (
	Waiting   State = "waiting"
	Applying  State = "applying"
	Conflict  State = "conflict"
	Applied   State = "applied"
	Skipped   State = "skipped"
	Unchanged State = "unchanged" // the patch is empty
	Applies   State = "applies"   // of a rehearsal
	Refused   State = "refused"   // of a rehearsal: neither whole nor with conflicts
)

// A Step is one job's patch.
type Step struct {
	Job    string `json:"job"`
	Item   string `json:"item,omitempty"`
	SHA256 string `json:"patch_sha256"`
	State  State  `json:"state"`
	// Before are the paths that it changes, as they were.
	Before []checkout.Entry `json:"before,omitempty"`
	// Conflicts are the paths at which a person has to merge; Why is why it was refused.
	Conflicts []string `json:"conflicts,omitempty"`
	Why       string   `json:"why,omitempty"`
	// Filtered are files that were written without the filter that attributes name.
	Filtered []string `json:"filtered,omitempty"`
}

func (s Step) over() bool { return s.State == Applied || s.State == Skipped || s.State == Unchanged }

// Plan is what a series is of. Source is where the patches are from, as a directory or the
// name of a batch.
type Plan struct {
	Schema int    `json:"schema"`
	Source string `json:"source"`
	Steps  []Step `json:"steps"`
}

// A StopError says at which step a series has stopped, and why.
type StopError struct {
	Step Step
	Err  error // nil for conflicts
}

func (e *StopError) Error() string {
	if e.Err != nil {
		return fmt.Sprintf("the patch of job %s cannot be applied: %v", e.Step.Job, e.Err)
	}
	return fmt.Sprintf("the patch of job %s has conflicts in %d of %d files", e.Step.Job, len(e.Step.Conflicts), len(e.Step.Before))
}

func (e *StopError) Unwrap() error { return e.Err }

// Conditions of a work tree.
var (
	ErrUnderWay = errors.New("a series of patches is under way")
	ErrNone     = errors.New("no series of patches is under way")
	// ErrUncommitted: the user has changed files that a patch changes.
	ErrUncommitted = errors.New("files that it changes have changes that are not staged")
)

// A Series is the one of a work tree. Close gives the tree free.
type Series struct {
	Plan
	tree *checkout.Tree
	root *os.Root // the git directory
	lock *os.File
}

// Files in the git directory.
const (
	planName = "penstock-apply.json"
	lockName = "penstock-apply.lock"
	schema   = 1
	maxPlan  = 256 << 20
)

// Begin begins a series; it is [ErrUnderWay] where one has not ended.
func Begin(tree *checkout.Tree, plan Plan) (*Series, error) {
	s, err := open(tree)
	if err != nil {
		return nil, err
	}
	if _, err = s.root.Lstat(planName); err == nil {
		err = ErrUnderWay
	} else if errors.Is(err, fs.ErrNotExist) {
		s.Plan = plan
		s.Schema = schema
		err = s.save()
	}
	if err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

// Open opens the series that is under way, or returns [ErrNone].
func Open(tree *checkout.Tree) (*Series, error) {
	s, err := open(tree)
	if err != nil {
		return nil, err
	}
	if err := s.read(); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

func open(tree *checkout.Tree) (*Series, error) {
	if tree.Dir() == "" {
		return nil, fmt.Errorf("%s is in no git repository", tree.Top())
	}
	root, err := os.OpenRoot(tree.Dir())
	if err != nil {
		return nil, err
	}
	s := &Series{tree: tree, root: root}
	s.lock, err = root.OpenFile(lockName, os.O_RDWR|os.O_CREATE, 0o600)
	if err == nil {
		err = filelock.Take(s.lock)
	}
	if err != nil {
		return nil, errors.Join(err, s.Close())
	}
	tree.Hold(s.lock)
	return s, nil
}

// Close gives the work tree free. It does not end the series.
func (s *Series) Close() error {
	var err error
	if s.lock != nil {
		err = s.lock.Close()
	}
	return errors.Join(err, s.root.Close())
}

func (s *Series) read() error {
	f, err := s.root.Open(planName)
	if errors.Is(err, fs.ErrNotExist) {
		return ErrNone
	}
	if err != nil {
		return err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxPlan))
	if err == nil {
		err = json.Unmarshal(data, &s.Plan)
	}
	if err == nil && s.Schema > schema {
		err = fmt.Errorf("it has schema %d, this program knows %d: use a newer penstock", s.Schema, schema)
	}
	if err != nil {
		return fmt.Errorf("read %s: %w", filepath.Join(s.tree.Dir(), planName), err)
	}
	return nil
}

// save puts the plan on the disk before it returns, whole or not at all.
func (s *Series) save() error {
	data, err := json.Marshal(s.Plan)
	if err != nil {
		return err
	}
	const tmp = planName + ".tmp"
	f, err := s.root.OpenFile(tmp, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err == nil {
		_, err = f.Write(data)
		err = errors.Join(err, f.Sync(), f.Close())
	}
	if err == nil {
		err = s.root.Rename(tmp, planName)
	}
	if err == nil {
		err = s.sync()
	}
	if err != nil {
		return fmt.Errorf("write %s: %w", filepath.Join(s.tree.Dir(), planName), err)
	}
	return nil
}

func (s *Series) sync() error {
	dir, err := s.root.Open(".")
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}

// Quit forgets the series, and leaves files and index as they are.
func (s *Series) Quit() error {
	if err := s.root.Remove(planName); err != nil {
		return err
	}
	return s.sync()
}

// A Source returns the patch of a step.
type Source func(context.Context, Step) ([]byte, error)
