package artifact

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/internal/subject"
	"github.com/penstock-run/penstock/jobs/internal/wire"
)

// PutSalvage stores what is known of an attempt's salvage, whose files are
// stored before as artifacts of the same epoch. An attempt has one.
func (s *Store) PutSalvage(ctx context.Context, v jobs.Salvage) error {
	if err := jobs.CheckToken("job", v.Job); err != nil {
		return err
	}
	if err := s.set(ctx, v.Job+"."+strconv.FormatUint(v.Epoch, 10)+".salvage", v); err != nil {
		return fmt.Errorf("store salvage of job %s: %w", v.Job, err)
	}
	return nil
}

// Salvages returns what was salvaged of a job's attempts, oldest first. What
// was stored of one that made the job a success is its result.
func (s *Store) Salvages(ctx context.Context, rec jobs.Record) ([]jobs.Salvage, error) {
	job := rec.ID
	if err := jobs.CheckToken("job", job); err != nil {
		return nil, err
	}
	list := []jobs.Salvage{}
	where := wire.Range{Stream: subject.KVStream(subject.Results), Subject: subject.Key(subject.Results, job+".*.salvage")}
	for m, err := range s.conn.Scan(ctx, where) {
		if err != nil {
			return nil, fmt.Errorf("salvages of job %s: %w", job, err)
		}
		var v jobs.Salvage
		if m.Gone() || json.Unmarshal(m.Data, &v) != nil || rec.Outcome == jobs.Success && v.Epoch == rec.Epoch {
			continue
		}
		list = append(list, v)
	}
	slices.SortFunc(list, func(a, b jobs.Salvage) int { return cmp.Compare(a.Epoch, b.Epoch) })
	return list, nil
}
