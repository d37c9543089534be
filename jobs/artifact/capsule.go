package artifact

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/internal/subject"
	"github.com/penstock-run/penstock/jobs/internal/wire"
)

// CapsuleFormat is the version of [Capsule] that this program writes. One of
// another version is not used.
const CapsuleFormat = 1

// A Capsule is what the next attempt of a job needs to go on with the agent's
// conversation, on any worker. It is the data of the event [jobs.CapsuleStored]. An
// attempt has one, of the end of its last turn.
type Capsule struct {
	Format int    `json:"format"`
	Job    string `json:"job"`
	Epoch  uint64 `json:"epoch"`
	Agent  string `json:"agent"`
	// Conversation is what the agent calls it.
	Conversation string `json:"conversation"`
	// Turn is how many turns have begun, over all attempts. Open: the last of
	// them was not over.
	Turn int  `json:"turn"`
	Open bool `json:"open,omitempty"`
	// Heard are the ids of the prompts that the conversation has, the oldest
	// first, besides the job's own.
	Heard []string `json:"heard,omitempty"`
	// Asks are the ids of the questions that were open.
	Asks []string `json:"asks,omitempty"`
	// Why is how the attempt ended; empty: that is not known.
	Why    jobs.Reason `json:"why,omitempty"`
	Worker string      `json:"worker"`
	Stored time.Time   `json:"stored"`

	// Home has the agent's own files of the conversation. Work is what it had
	// changed in the workspace, nil where that stays in its place; both are
	// artifacts of the epoch.
	Home jobs.Artifact `json:"home"`
	Work *jobs.Salvage `json:"work,omitempty"`
}

// A CapsuleError says why the conversation of a job cannot be continued.
type CapsuleError struct{ Why string }

func (e *CapsuleError) Error() string { return e.Why }

// LastCapsule returns the newest capsule of a job since it was begun anew, with
// all its parts there. That there is none is a [*CapsuleError].
func (s *Store) LastCapsule(ctx context.Context, rec jobs.Record) (Capsule, error) {
	list, err := s.Capsules(ctx, rec.ID)
	if err != nil {
		return Capsule{}, err
	}
	list = slices.DeleteFunc(list, func(c Capsule) bool { return c.Epoch != 0 && c.Epoch <= rec.Since })
	if len(list) == 0 {
		return Capsule{}, &CapsuleError{"nothing is kept of a conversation of agent " + rec.Agent + " that another process could go on with"}
	}
	c := list[len(list)-1]
	return c, s.Usable(ctx, c, rec)
}

// Usable reports why a capsule cannot be used for a job, as a [*CapsuleError].
func (s *Store) Usable(ctx context.Context, c Capsule, rec jobs.Record) error {
	switch {
	case c.Format != CapsuleFormat:
		return &CapsuleError{fmt.Sprintf("the capsule has format %d, and this program knows %d", c.Format, CapsuleFormat)}
	case c.Agent != rec.Agent:
		return &CapsuleError{"the capsule is of agent " + c.Agent}
	}
	for _, part := range c.parts() {
		got, err := s.Check(ctx, c.Job, c.Epoch, part.Name)
		switch {
		case errors.Is(err, jobs.ErrUnavailable):
			return err
		case err != nil:
			return &CapsuleError{"the capsule is broken: " + err.Error()}
		case got.SHA256 != part.SHA256:
			return &CapsuleError{"the capsule is broken: " + part.Name + " is not what the capsule names"}
		}
	}
	return nil
}

// Parts are the names of the artifacts that it needs.
func (c Capsule) Parts() []string {
	var names []string
	for _, part := range c.parts() {
		names = append(names, part.Name)
	}
	return names
}

func (c Capsule) parts() []jobs.Artifact {
	parts := []jobs.Artifact{c.Home}
	if c.Work == nil {
		return parts
	}
	for _, a := range []*jobs.Artifact{c.Work.Patch, c.Work.Bundle} {
		if a != nil {
			parts = append(parts, *a)
		}
	}
	return parts
}

// partPrefix begins the names of parts, which the sum of their content ends.
const partPrefix = "part."

// PutPart stores content of an attempt under its own sum. What is there already
// is not stored again, and no list shows it: a capsule names it.
func (s *Store) PutPart(ctx context.Context, job string, epoch uint64, r io.ReadSeeker) (jobs.Artifact, error) {
	sum := sha256.New()
	n, err := io.Copy(sum, r)
	if err == nil {
		_, err = r.Seek(0, io.SeekStart)
	}
	if err != nil {
		return jobs.Artifact{}, fmt.Errorf("read a part of job %s: %w", job, err)
	}
	a := jobs.Artifact{Name: partPrefix + hex.EncodeToString(sum.Sum(nil)), Bytes: n, SHA256: hex.EncodeToString(sum.Sum(nil))}
	object, _, err := place(job, epoch, a.Name)
	if err != nil {
		return jobs.Artifact{}, err
	}
	there, err := s.meta(ctx, object)
	if err == nil && there.Digest == digest(sum) {
		return a, nil
	}
	if err == nil || errors.Is(err, jobs.ErrNotFound) {
		var put jobs.Artifact
		if put, err = s.write(ctx, object, a.Name, r); err == nil && put != a {
			err = errors.New("it changed while it was read")
		}
	}
	if err != nil {
		return jobs.Artifact{}, fmt.Errorf("store a part of job %s: %w", job, err)
	}
	return a, nil
}

// dropPart removes a part. What cannot be removed goes with the retention.
func (s *Store) dropPart(ctx context.Context, job string, epoch uint64, name string) {
	object, _, err := place(job, epoch, name)
	if err != nil {
		return
	}
	if m, err := s.meta(ctx, object); err == nil {
		m.Deleted = true
		if s.writeMeta(ctx, m) == nil {
			s.removeChunks(ctx, m.NUID)
		}
	}
}

// PutCapsule stores an attempt's capsule, whose parts are stored before, in the
// place of the one before it, and removes the parts that only that one names.
func (s *Store) PutCapsule(ctx context.Context, c, before Capsule) error {
	if err := jobs.CheckToken("job", c.Job); err != nil {
		return err
	}
	if err := s.set(ctx, c.Job+"."+strconv.FormatUint(c.Epoch, 10)+".capsule", c); err != nil {
		return fmt.Errorf("store capsule of job %s: %w", c.Job, err)
	}
	parts := c.Parts()
	for _, name := range before.Parts() {
		if strings.HasPrefix(name, partPrefix) && before.Epoch == c.Epoch && !slices.Contains(parts, name) {
			s.dropPart(ctx, c.Job, c.Epoch, name)
		}
	}
	return nil
}

// Capsules returns the capsules of a job's attempts, oldest first.
func (s *Store) Capsules(ctx context.Context, job string) ([]Capsule, error) {
	if err := jobs.CheckToken("job", job); err != nil {
		return nil, err
	}
	var list []Capsule
	where := wire.Range{Stream: subject.KVStream(subject.Results), Subject: subject.Key(subject.Results, job+".*.capsule")}
	for m, err := range s.conn.Scan(ctx, where) {
		if err != nil {
			return nil, fmt.Errorf("capsules of job %s: %w", job, err)
		}
		var c Capsule
		if m.Gone() || json.Unmarshal(m.Data, &c) != nil {
			continue
		}
		list = append(list, c)
	}
	slices.SortFunc(list, func(a, b Capsule) int { return cmp.Compare(a.Epoch, b.Epoch) })
	return list, nil
}

// CopyCapsule gives a job that has not begun the capsule of another one to begin
// from, with copies of all its parts: what becomes of that job does not matter to
// it. It is the job's capsule of epoch 0, which no attempt has, and may be copied
// again.
func (s *Store) CopyCapsule(ctx context.Context, c Capsule, job string) error {
	to := c
	to.Job, to.Epoch, to.Stored = job, 0, time.Now().UTC()
	var err error
	if to.Home, err = s.copyPart(ctx, c, c.Home.Name, job); err != nil {
		return err
	}
	if c.Work != nil {
		work := *c.Work
		work.Job, work.Epoch = job, 0
		for _, part := range []**jobs.Artifact{&work.Patch, &work.Bundle} {
			if *part == nil {
				continue
			}
			copied, err := s.copyPart(ctx, c, (*part).Name, job)
			if err != nil {
				return err
			}
			*part = &copied
		}
		to.Work = &work
	}
	return s.PutCapsule(ctx, to, Capsule{})
}

// copyPart copies one artifact that a capsule names, by a file: it is stored
// under its sum, so it is read twice.
func (s *Store) copyPart(ctx context.Context, from Capsule, name, job string) (_ jobs.Artifact, err error) {
	content, err := s.Get(ctx, from.Job, from.Epoch, name)
	if err != nil {
		return jobs.Artifact{}, err
	}
	defer content.Close()
	f, err := os.CreateTemp("", "penstock-part-")
	if err != nil {
		return jobs.Artifact{}, err
	}
	defer func() { err = errors.Join(err, f.Close(), os.Remove(f.Name())) }()
	if _, err := io.Copy(f, content); err != nil {
		return jobs.Artifact{}, fmt.Errorf("copy a part of job %s: %w", from.Job, err)
	}
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		return jobs.Artifact{}, err
	}
	return s.PutPart(ctx, job, 0, f)
}
