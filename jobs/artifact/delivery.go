package artifact

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"

	"github.com/penstock-run/penstock/jobs"
	"github.com/penstock-run/penstock/jobs/event"
	"github.com/penstock-run/penstock/jobs/internal/subject"
	"github.com/penstock-run/penstock/jobs/internal/wire"
)

// PutDelivery notes, before an attempt makes a branch, which commit it will put
// there. It is no artifact: an agent can name those.
func (s *Store) PutDelivery(ctx context.Context, job string, epoch uint64, d event.BranchDelivered) error {
	if err := jobs.CheckToken("job", job); err != nil {
		return err
	}
	if err := s.set(ctx, job+"."+strconv.FormatUint(epoch, 10)+".delivery", d); err != nil {
		return fmt.Errorf("note the delivery of job %s: %w", job, err)
	}
	return nil
}

// Deliveries returns what the attempts of a job have noted that they will put on
// a branch, by their epochs.
func (s *Store) Deliveries(ctx context.Context, job string) (map[uint64]event.BranchDelivered, error) {
	if err := jobs.CheckToken("job", job); err != nil {
		return nil, err
	}
	found := map[uint64]event.BranchDelivered{}
	where := wire.Range{Stream: subject.KVStream(subject.Results), Subject: subject.Key(subject.Results, job+".*.delivery")}
	for m, err := range s.conn.Scan(ctx, where) {
		if err != nil {
			return nil, fmt.Errorf("deliveries of job %s: %w", job, err)
		}
		var epoch uint64
		if _, err := fmt.Sscanf(m.Subject, subject.Key(subject.Results, job+".%d.delivery"), &epoch); err != nil || m.Gone() {
			continue
		}
		var d event.BranchDelivered
		if err := json.Unmarshal(m.Data, &d); err != nil {
			return nil, fmt.Errorf("delivery of job %s, epoch %d: %w", job, epoch, err)
		}
		found[epoch] = d
	}
	return found, nil
}
