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

// CapsuleFormat is the version of [jobs.Capsule] that this program writes. One of
// another version is not used.
const CapsuleFormat = 1

// A CapsuleError says why the conversation of a job cannot be continued.
type CapsuleError struct{ Why string }

func (e *CapsuleError) Error() string { return e.Why }

// LastCapsule returns the newest capsule of a job since it last started over, with
// all its parts there. If there is none, the error is a [*CapsuleError].
func (s *Store) LastCapsule(ctx context.Context, rec jobs.Record) (jobs.Capsule, error) {
	list, err := s.Capsules(ctx, rec.ID)
	if err != nil {
		return jobs.Capsule{}, err
	}
	list = slices.DeleteFunc(list, func(c jobs.Capsule) bool { return c.Epoch != 0 && c.Epoch <= rec.Since })
	if len(list) == 0 {
		return jobs.Capsule{}, &CapsuleError{"nothing is kept of a conversation of agent " + rec.Agent + " that another process could go on with"}
	}
	c := list[len(list)-1]
	return c, s.Usable(ctx, c, rec)
}

// Usable reports why a capsule cannot be used for a job, as a [*CapsuleError].
func (s *Store) Usable(ctx context.Context, c jobs.Capsule, rec jobs.Record) error {
	switch {
	case c.Format != CapsuleFormat:
		return &CapsuleError{fmt.Sprintf("the capsule has format %d, and this program knows %d", c.Format, CapsuleFormat)}
	case c.Agent != rec.Agent:
		return &CapsuleError{"the capsule is of agent " + c.Agent}
	}
	for _, part := range c.Parts() {
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

// partPrefix begins the names of parts, which the sum of their content ends.
const partPrefix = "part."

// PutPart stores content of an attempt under its own sum. It does not store a part
// that is there already, and no list shows parts: a capsule names them.
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
	object, _, err := keys(job, epoch, a.Name)
	if err != nil {
		return jobs.Artifact{}, err
	}
	there, err := s.objects.meta(ctx, object)
	if err == nil && there.Digest == digest(sum) {
		return a, nil
	}
	if err == nil || errors.Is(err, jobs.ErrNotFound) {
		var put jobs.Artifact
		if put, err = s.objects.write(ctx, object, a.Name, r); err == nil && put != a {
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
	object, _, err := keys(job, epoch, name)
	if err != nil {
		return
	}
	if m, err := s.objects.meta(ctx, object); err == nil {
		m.Deleted = true
		if s.objects.writeMeta(ctx, m) == nil {
			s.objects.removeChunks(ctx, m.NUID)
			s.objects.count(-m.Size)
		}
	}
}

// PutCapsule stores an attempt's capsule, whose parts are stored before, in the
// place of the one before it, and removes the parts that only that one names.
func (s *Store) PutCapsule(ctx context.Context, c, before jobs.Capsule) error {
	if err := jobs.CheckToken("job", c.Job); err != nil {
		return err
	}
	if err := s.set(ctx, c.Job+"."+strconv.FormatUint(c.Epoch, 10)+".capsule", c); err != nil {
		return fmt.Errorf("store capsule of job %s: %w", c.Job, err)
	}
	parts := c.Parts()
	for _, part := range before.Parts() {
		kept := slices.ContainsFunc(parts, func(a jobs.Artifact) bool { return a.Name == part.Name })
		if strings.HasPrefix(part.Name, partPrefix) && before.Epoch == c.Epoch && !kept {
			s.dropPart(ctx, c.Job, c.Epoch, part.Name)
		}
	}
	return nil
}

// Capsules returns the capsules of a job's attempts, oldest first.
func (s *Store) Capsules(ctx context.Context, job string) ([]jobs.Capsule, error) {
	if err := jobs.CheckToken("job", job); err != nil {
		return nil, err
	}
	var list []jobs.Capsule
	where := wire.Range{Stream: subject.KVStream(subject.Results), Subject: subject.Key(subject.Results, job+".*.capsule")}
	for m, err := range s.conn.Scan(ctx, where) {
		if err != nil {
			return nil, fmt.Errorf("capsules of job %s: %w", job, err)
		}
		var c jobs.Capsule
		if m.Gone() || json.Unmarshal(m.Data, &c) != nil {
			continue
		}
		list = append(list, c)
	}
	slices.SortFunc(list, func(a, b jobs.Capsule) int { return cmp.Compare(a.Epoch, b.Epoch) })
	return list, nil
}

// CopyCapsule gives a job that has not begun the capsule of another one to begin
// from, with copies of all its parts: it does not depend on what becomes of that
// job. It is the job's capsule of epoch 0, which no attempt has, and may be copied
// again.
func (s *Store) CopyCapsule(ctx context.Context, c jobs.Capsule, job string) error {
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
	return s.PutCapsule(ctx, to, jobs.Capsule{})
}

// copyPart copies one artifact that a capsule names, by a file: it is stored
// under its sum, so it is read twice.
func (s *Store) copyPart(ctx context.Context, from jobs.Capsule, name, job string) (_ jobs.Artifact, err error) {
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
