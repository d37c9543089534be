package jobcmd

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/penstock-run/penstock/cmd/internal/cli"
	"github.com/penstock-run/penstock/cmd/internal/input"
	"github.com/penstock-run/penstock/cmd/internal/pool"
	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/operation"
)

// A purgeSelection says which jobs are to be purged, besides those that are named.
type purgeSelection struct {
	operation.ListRequest
	labels         []string
	finishedBefore string
	before         time.Time
}

// prepare reads what the flags say. Jobs are named or selected, and not both.
func (s *purgeSelection) prepare(args []string, now time.Time) (err error) {
	if s.before, err = input.Past(s.finishedBefore, now); err != nil {
		return cli.Usage("", "--finished-before: %w", err)
	}
	selects := s.Batch != "" || s.Queue != "" || len(s.labels) > 0 || !s.before.IsZero()
	if (len(args) == 0) != selects {
		return cli.Usage("penstock job purge ID…, or --batch NAME, --queue NAME, --label NAME=VALUE, --finished-before TIME", "job purge: name jobs, or select some")
	}
	if !s.before.IsZero() {
		s.State = jobs.Finished
	}
	return nil
}

// match reports whether a job that the pool has listed is selected.
func (s *purgeSelection) match(rec jobs.Record) bool {
	return labelled(rec, s.labels) && (s.before.IsZero() || rec.Finished != nil && rec.Finished.Before(s.before))
}

// A purgeable is what is to be purged. A job whose record is gone has an id only.
type purgeable struct {
	ids       []string
	of        map[string]string // the session of each job whose record is there
	queues    map[string]int
	from, to  time.Time     // when the first and the last of them finished
	records   []jobs.Record // only where they are to be listed
	recording bool
}

// find finds the jobs, and refuses all of them if one has not finished. It keeps whole records only
// where they are listed: there may be very many.
func (s *purgeSelection) find(ctx context.Context, p *pool.Pool, args []string, list bool) (*purgeable, error) {
	found := &purgeable{of: map[string]string{}, queues: map[string]int{}, recording: list}
	for _, id := range args {
		rec, err := p.Client.Get(ctx, id)
		switch {
		case errors.Is(err, jobs.ErrNotFound):
			found.ids = append(found.ids, id) // something of it may be left
		case err == nil:
			err = found.add(rec)
		}
		if err != nil && !errors.Is(err, jobs.ErrNotFound) {
			return nil, err
		}
	}
	if len(args) > 0 {
		return found, nil
	}
	for rec, err := range p.Client.List(ctx, s.ListRequest) {
		if err == nil && s.match(rec) {
			err = found.add(rec)
		}
		if err != nil {
			return nil, err
		}
	}
	if len(found.ids) == 0 {
		return nil, fmt.Errorf("job purge: no job is selected: %w", jobs.ErrNotFound)
	}
	return found, nil
}

func (f *purgeable) add(rec jobs.Record) error {
	if rec.State != jobs.Finished {
		return cli.Fail(cli.ExitUnexpected, "penstock job cancel "+rec.ID+", and purge it when it has ended; or select with --finished-before",
			"job purge: job %s is %s: nothing was removed", rec.ID, rec.State)
	}
	f.ids, f.of[rec.ID] = append(f.ids, rec.ID), rec.Session
	f.queues[rec.Queue]++
	if at := rec.Finished; at != nil && (f.from.IsZero() || at.Before(f.from)) {
		f.from = *at
	}
	if at := rec.Finished; at != nil && at.After(f.to) {
		f.to = *at
	}
	if f.recording {
		f.records = append(f.records, rec)
	}
	return nil
}

// String says how many jobs there are, for people.
func (f *purgeable) String() string {
	parts := make([]string, 0, len(f.queues))
	for _, name := range slices.Sorted(maps.Keys(f.queues)) {
		parts = append(parts, fmt.Sprintf("%d of queue %s", f.queues[name], name))
	}
	text := fmt.Sprintf("%d jobs", len(f.ids))
	if len(parts) > 0 {
		text += fmt.Sprintf(" (%s), which finished from %s to %s", strings.Join(parts, ", "), f.from.Local().Format(time.RFC3339), f.to.Local().Format(time.RFC3339))
	}
	return text
}

// sessions returns the ids, those of one session together.
func (f *purgeable) sessions() [][]string {
	var lists [][]string
	at := map[string]int{}
	for _, id := range f.ids {
		session := f.of[id]
		if i, ok := at[session]; ok && session != "" {
			lists[i] = append(lists[i], id)
			continue
		}
		at[session] = len(lists)
		lists = append(lists, []string{id})
	}
	return lists
}
